"""Datasets by name, path or hub id."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from potion.data.encoded import Encoded, FolderFiles, HubRows, ParquetRows, subfolders
from potion.data.images import DiskImages, Images, ImageSet
from potion.errors import told

__all__ = ["ASSETS", "DATASETS", "load", "locate", "splits_in"]

ASSETS: Final = Path(__file__).parent.parent / "assets"
SPLITS: Final = {"train": ("train",), "test": ("test", "validation", "val", "valid")}
"""What each split may be called on disk."""


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
        a class (directly or below ``train`` and ``test``/``validation``/``val``; an empty one keeps its class's number); or
        a Hugging Face hub id (extra ``hub``).
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
    source: str | os.PathLike[str],
    split: str = "train",
    *,
    root: str | os.PathLike[str] | None = None,
    may_lack_classes: bool = False,
) -> Encoded:
    """Where the images of a split lie, as :func:`load` finds them; nothing is decoded yet.

    ``may_lack_classes`` is for images to score on: where classes have no names, some numbers may have no image.
    """
    named = DATASETS.get(str(source))
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    if named is not None:
        folder = Path(root or os.environ.get("POTION_DATA", "data")) / named.folder
        if not folder.exists():
            raise FileNotFoundError(
                f"no {source} at {folder}: put its parquet files there, or name the data folder with POTION_DATA"
            )
        return _from_folder(folder, named.test if split == "test" else split, may_lack_classes)
    if Path(source).exists():
        return _from_path(Path(source), split, may_lack_classes)
    if _may_be_hub_id(str(source)):
        return _from_hub(str(source), split, may_lack_classes)
    raise FileNotFoundError(
        f"no dataset {str(source)!r}: there is no such folder or file, and it is none of {', '.join(DATASETS)}"
    )


def splits_in(path: Path) -> list[str]:
    """The splits in a folder: parquet files, or folders of class folders; CIFAR-100 has a class called ``train``."""
    names = [name for group in SPLITS.values() for name in group]
    return [name for name in names if any(path.glob(f"{name}*.parquet")) or _has_classes(path / name)]


def _has_classes(folder: Path) -> bool:
    return folder.is_dir() and bool(subfolders(folder))


def _may_be_hub_id(source: str) -> bool:
    """``owner/name``, and nothing that looks like a path; a version as in ``name-v1.0`` is no file's suffix."""
    path = Path(source)
    looks_like_path = source.startswith((".", "/", "~")) or path.parent.exists() or path.suffix[1:].isalpha()
    return source.count("/") == 1 and not looks_like_path


def _from_path(path: Path, split: str, may_lack_classes: bool) -> Encoded:
    found = splits_in(path)
    for name in SPLITS[split]:
        if name in found:
            return _from_folder(path, name, may_lack_classes)
    if found or (path.is_dir() and any(path.glob("*.parquet"))):
        names = ", ".join(f"{name}*.parquet" for name in SPLITS[split])
        raise FileNotFoundError(
            f"{path}: no {split} split: neither parquet files called {names} nor such a folder of class folders; a single "
            "parquet file can be given by its path"
        )
    if split == "test":
        raise FileNotFoundError(f"{path} has no splits, it is all training data; give the path of the test data itself")
    return ParquetRows([path], may_lack_classes=may_lack_classes) if path.is_file() else FolderFiles(path)


def _from_folder(folder: Path, split: str, may_lack_classes: bool) -> Encoded:
    if files := sorted(folder.glob(f"{split}*.parquet")):
        return ParquetRows(files, may_lack_classes=may_lack_classes)
    if (folder / split).is_dir():
        train = folder / "train"
        return FolderFiles(folder / split, class_folder=train if _has_classes(train) else None)
    if split == "validation" and (folder / "val").is_dir():  # as ImageNet unpacks
        return _from_folder(folder, "val", may_lack_classes)
    raise FileNotFoundError(f"{folder}: neither {split}*.parquet nor a folder {split} in it")


def _from_hub(name: str, split: str, may_lack_classes: bool) -> Encoded:
    try:
        import datasets
    except ModuleNotFoundError:
        raise FileNotFoundError(
            f"no dataset {name!r} here; to look for it on the hub, install the extra: pip install 'potion[hub]'"
        ) from None
    try:
        with _quiet_hub():
            splits = datasets.get_dataset_split_names(name)
    except Exception as error:  # no network, no such dataset, no access: all of them exceptions of many libraries
        raise FileNotFoundError(
            f"no dataset {name!r}: there is no such folder here, and the Hugging Face hub did not give it: {told(error)}"
        ) from error
    chosen = next((choice for choice in SPLITS[split] if choice in splits), None)
    if chosen is None:
        raise ValueError(f"{name}: no {split} split; it has {', '.join(splits)}")
    dataset: Any = datasets.load_dataset(name, split=chosen)
    return HubRows(dataset, f"{name} ({chosen})", may_lack_classes=may_lack_classes)


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Without a line for each of the attempts to reach the hub: the last one's error says it all."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
