"""Images and their poisoned views, in batches that live wherever the images do."""

from potion.data.encoded import Encoded, FolderFiles, HubRows, ParquetRows
from potion.data.images import DiskImages, Images, ImageSet
from potion.data.load import DATASETS, load, locate
from potion.data.poison import PoisonedSet, draw_poison, known_share
from potion.data.views import View

__all__ = [
    "DATASETS", "DiskImages", "Encoded", "FolderFiles", "HubRows", "ImageSet", "Images", "ParquetRows", "PoisonedSet",
    "View", "draw_poison", "known_share", "load", "locate",
]  # fmt: skip
