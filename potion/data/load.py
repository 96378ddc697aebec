"""Datasets by name, path or hub id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from potion.data.encoded import Encoded, FolderFiles, HubRows, ParquetRows
from potion.data.images import DiskImages, Images, ImageSet

__all__ = ["ASSETS", "DATASETS", "load", "locate"]

ASSETS: Final = Path(__file__).parent.parent / "assets"


class _Named(NamedTuple):
    """Where a dataset lies below the data folder, and what its splits are called there."""

    folder: str
    test: str = "test"
    size: int | None = None
    streamed: bool = False


DATASETS: Final[dict[str, _Named]] = {
    "cifar10": _Named("cifar10"),
    "cifar100": _Named("cifar100"),
    "imagenette": _Named("imagenette160", test="validation"),
    "imagenet": _Named("imagenet", test="validation", size=224, streamed=True),
    "fashion-mnist": _Named(str(ASSETS)),
}


def load(
    source: str | os.PathLike[str],
    split: str = "train",
    *,
    root: str | os.PathLike[str] | None = None,
    size: int | None = None,
    streamed: bool | None = None,
    limit: int | None = None,
) -> Images:
    """The ``"train"`` or ``"test"`` split of a dataset.

    :param source: a name (``cifar10``, ``cifar100``, ``imagenette``, ``imagenet``, ``fashion-mnist``: the embedded
        subset); the path of a parquet file, of a folder with parquet files of each split, or of a folder with one subfolder
        a class (directly or below ``train`` and ``test``/``validation``/``val``); or a Hugging Face hub id (extra ``hub``).
    :param root: where the named datasets lie; default: the environment variable ``POTION_DATA``, or ``./data``.
    :param size: bring every image to this size (its middle square); needed where the images differ in size.
    :param streamed: leave the images on disk and decode them batch by batch; needs ``size``.
    :param limit: take the first so many images only; not for a streamed dataset.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 image, got {limit}")
    encoded, named = locate(source, split, root=root), DATASETS.get(str(source))
    if named is not None:
        size, streamed = size or named.size, named.streamed if streamed is None else streamed
    if not streamed:
        return ImageSet.decoded(encoded, size, limit)
    if limit is not None:
        raise ValueError("limit is for datasets in memory, not for streamed ones")
    if size is None:
        raise ValueError("size must be given for a streamed dataset: batches need images of one size")
    return DiskImages(encoded, size)


def locate(
    source: str | os.PathLike[str], split: str = "train", *, root: str | os.PathLike[str] | None = None
) -> Encoded:
    """Where the images of a split lie, as :func:`load` finds them; nothing is decoded yet."""
    named = DATASETS.get(str(source))
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    if named is not None:
        folder = Path(root or os.environ.get("POTION_DATA", "data")) / named.folder
        if not folder.exists():
            raise FileNotFoundError(
                f"no {source} at {folder}: put its parquet files there, or name the data folder with POTION_DATA"
            )
        return _from_folder(folder, named.test if split == "test" else split)
    if Path(source).exists():
        return _from_path(Path(source), split)
    if str(source).count("/") == 1 and not str(source).startswith((".", "/", "~")) and not Path(source).parent.exists():
        return _from_hub(str(source), split)
    raise FileNotFoundError(f"no dataset {str(source)!r}: neither a path nor one of {', '.join(DATASETS)}")


def _from_path(path: Path, split: str) -> Encoded:
    names = {"train": ("train",), "test": ("test", "validation", "val", "valid")}
    for name in names[split]:
        if path.is_dir() and (list(path.glob(f"{name}*.parquet")) or (path / name).is_dir()):
            return _from_folder(path, name)
    others = [name for each in names.values() for name in each if (path / name).is_dir()]
    if others or (path.is_dir() and any(path.glob("*.parquet"))):
        raise FileNotFoundError(f"{path}: no {split} split (looked for {', '.join(names[split])})")
    if split == "test":
        raise FileNotFoundError(f"{path} has no splits, it is all training data; give the path of the test data itself")
    return ParquetRows([path]) if path.is_file() else FolderFiles(path)


def _from_folder(folder: Path, split: str) -> Encoded:
    if files := sorted(folder.glob(f"{split}*.parquet")):
        return ParquetRows(files)
    if (folder / split).is_dir():
        train = folder / "train"
        return FolderFiles(folder / split, class_folder=train if train.is_dir() else None)
    if split == "validation" and (folder / "val").is_dir():  # as ImageNet unpacks
        return _from_folder(folder, "val")
    raise FileNotFoundError(f"{folder}: neither {split}*.parquet nor a folder {split} in it")


def _from_hub(name: str, split: str) -> Encoded:
    try:
        import datasets
    except ModuleNotFoundError:
        raise FileNotFoundError(
            f"no dataset {name!r} here; to look for it on the hub, install the extra: pip install 'potion[hub]'"
        ) from None
    splits = datasets.get_dataset_split_names(name)
    choices = ("train",) if split == "train" else ("test", "validation", "valid")
    chosen = next((choice for choice in choices if choice in splits), None)
    if chosen is None:
        raise ValueError(f"{name}: no {split} split; it has {', '.join(splits)}")
    dataset: Any = datasets.load_dataset(name, split=chosen)
    return HubRows(dataset, f"{name} ({chosen})")
