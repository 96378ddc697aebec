"""Images as they lie on disk or in the hub: encoded bytes and labels, read one by one, every fault named with its place."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

__all__ = ["Encoded", "FolderFiles", "HubRows", "ParquetRows", "subfolders"]

SUFFIXES: Final = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}


UNREADABLE: Final = (pa.ArrowException, OSError, MemoryError)
"""What pyarrow raises for a damaged file."""


class Encoded(ABC):
    """A split of a dataset: encoded images, ``labels`` int64 (N,) and the names of the ``classes``."""

    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def read(self, index: int) -> bytes:
        """The bytes of one image file."""

    @abstractmethod
    def where(self, index: int) -> str:
        """The place of a sample, for people: file and row."""

    def names(self) -> list[str] | None:
        """The file that each sample came from, where that is known."""
        return None

    def cheap_order(self, generator: torch.Generator) -> list[int] | None:
        """All indices in an order that is random and cheap to read; ``None`` where any order is as good."""
        return None

    def _take_labels(
        self, labels: np.ndarray[Any, Any], classes: Sequence[str] | None, source: str, may_lack_classes: bool = False
    ) -> None:
        """Check and keep the labels; without names the classes are counted, and a gap is taken for a mistake."""
        if len(labels) == 0:
            raise ValueError(f"{source}: there are no images")
        self.labels = torch.from_numpy(labels.astype(np.int64))
        names = tuple(str(label) for label in range(int(labels.max()) + 1)) if classes is None else tuple(classes)
        for wrong in np.flatnonzero((labels < 0) | (labels >= len(names)))[:1]:
            raise ValueError(f"{self.where(int(wrong))}: label {labels[wrong]} is not one of the {len(names)} classes")
        counted = classes is None and not may_lack_classes
        if counted and (missing := sorted(set(range(len(names))) - set(labels.tolist()))):
            raise ValueError(f"{source}: labels go up to {labels.max()}, but no sample has label {missing[0]}")
        self.classes = names


class ParquetRows(Encoded):
    """Parquet files in the Hugging Face hub's layout: ``image`` (struct with ``bytes``, or bytes) and ``label``.

    Row groups are read when they are needed; those used last are kept, up to ``allowance`` bytes.
    """

    def __init__(self, files: Sequence[Path], allowance: int = 256 * 2**20, *, may_lack_classes: bool = False) -> None:
        self.files, self.allowance = [Path(file) for file in files], allowance
        self._groups: list[_RowGroup] = []
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._lock = threading.Lock()
        starts, labels, names = [0], [], None
        for file in self.files:
            opened = _opened(file)
            names = names or _class_names(opened.schema_arrow)
            labels.append(_labels_of(opened, file))
            first = starts[-1]
            for number in range(opened.num_row_groups):
                group = opened.metadata.row_group(number)
                self._groups.append(_RowGroup(file, number, first, group.total_byte_size))
                starts.append(starts[-1] + group.num_rows)
        self._starts = np.array(starts)
        self._take_labels(np.concatenate(labels), names, str(self.files[0]), may_lack_classes)

    def read(self, index: int) -> bytes:
        place = self._place(index)
        with self._lock:  # threads decode side by side, but one at a time reads
            column = self._column(place)
        image = column[index - int(self._starts[place])].as_py()
        encoded = image["bytes"] if isinstance(image, dict) else image
        if encoded is None:
            raise ValueError(f"{self.where(index)}: the image is missing")
        return bytes(encoded)

    def where(self, index: int) -> str:
        group = self._groups[self._place(index)]
        return f"{group.file}, row {index - group.first_row_of_file}"

    def names(self) -> list[str] | None:
        if any("image.path" not in _leaves(_opened(file)) for file in self.files):
            return None
        columns = [_opened(file).read(columns=["image.path"]).column("image") for file in self.files]
        found = [image["path"] for column in columns for image in column.to_pylist()]
        return None if None in found else found

    def cheap_order(self, generator: torch.Generator) -> list[int] | None:
        """Row groups in random order; rows mixed among as many groups as are kept at a time."""
        together = max(1, self.allowance // max(group.size for group in self._groups))
        order: list[int] = []
        for some in torch.randperm(len(self._groups), generator=generator).split(together):
            rows = torch.cat([torch.arange(self._starts[g], self._starts[g + 1]) for g in some.tolist()])
            order += rows[torch.randperm(len(rows), generator=generator)].tolist()
        return order

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process starts with nothing in memory and a lock of its own."""
        return {key: value for key, value in vars(self).items() if key not in ("_kept", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _kept=OrderedDict(), _lock=threading.Lock())

    def _place(self, index: int) -> int:
        """Which row group a sample lies in."""
        return int(np.searchsorted(self._starts, index, side="right")) - 1

    def _column(self, place: int) -> Any:
        if place not in self._kept:
            group = self._groups[place]
            while self._kept and sum(self._groups[kept].size for kept in self._kept) + group.size > self.allowance:
                self._kept.popitem(last=False)
            try:
                table = _opened(group.file).read_row_group(group.number, columns=["image"])
            except UNREADABLE as error:
                raise ValueError(f"{group.file}, row group {group.number}: cannot be read: {error}") from error
            self._kept[place] = table.column("image").combine_chunks()
        self._kept.move_to_end(place)
        return self._kept[place]


class _RowGroup(NamedTuple):
    file: Path
    number: int
    first_row_of_file: int
    size: int


def _opened(file: Path) -> Any:
    try:
        opened = pq.ParquetFile(file)
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise ValueError(f"{file}: not a complete parquet file: {error}") from error
    for column in ("image", "label"):
        if column not in opened.schema_arrow.names:
            raise ValueError(f"{file}: no column {column!r}; it has {', '.join(opened.schema_arrow.names)}")
    return opened


def _leaves(opened: Any) -> set[str]:
    """The columns with their fields: ``image.path`` where ``image`` is a struct."""
    return {opened.schema.column(place).path for place in range(len(opened.schema))}


def _class_names(schema: Any) -> Sequence[str] | None:
    """The names in the hub's metadata, where there are any."""
    try:
        names = json.loads(schema.metadata[b"huggingface"])["info"]["features"]["label"]["names"]
    except (KeyError, TypeError, json.JSONDecodeError):
        return None
    return [str(name) for name in names]


def _labels_of(opened: Any, file: Path) -> np.ndarray[Any, Any]:
    try:
        column = opened.read(columns=["label"]).column("label")
    except UNREADABLE as error:
        raise ValueError(f"{file}: the labels cannot be read: {error}") from error
    if not pa.types.is_integer(column.type):
        raise ValueError(f"{file}: column 'label' must hold integers, it holds {column.type}")
    if column.null_count:
        raise ValueError(f"{file}, row {int(np.flatnonzero(column.is_null().to_numpy())[0])}: the label is missing")
    return np.asarray(column.to_numpy())


class FolderFiles(Encoded):
    """A folder with one subfolder a class; classes are numbered in the order of their sorted names, empty ones as well.

    With a ``class_folder``, the training split's, its classes are the ones that count: a test split may lack some.
    """

    def __init__(self, folder: Path, class_folder: Path | None = None) -> None:
        names = subfolders(class_folder or folder)
        if not names:
            raise ValueError(f"{folder}: no subfolders; expected one a class, with its images in it")
        if unknown := sorted(set(subfolders(folder)) - set(names)):
            raise ValueError(f"{folder / unknown[0]}: there is no such class in {class_folder}")
        files = [
            [file for file in sorted((folder / name).rglob("*")) if file.suffix.lower() in SUFFIXES] for name in names
        ]
        for name, found in zip(names, files, strict=True):
            others = (file for file in (folder / name).rglob("*") if not file.name.startswith("."))
            if not found and any(others):
                raise ValueError(f"{folder / name}: the class has no images ({', '.join(sorted(SUFFIXES))})")
        self.files = [file for found in files for file in found]
        counts = [len(found) for found in files]
        self._take_labels(np.repeat(np.arange(len(names)), counts), names, str(folder))

    def read(self, index: int) -> bytes:
        return self.files[index].read_bytes()

    def where(self, index: int) -> str:
        return str(self.files[index])

    def names(self) -> list[str] | None:
        return [str(file) for file in self.files]


def subfolders(folder: Path) -> list[str]:
    """The names of the classes in a folder."""
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


class HubRows(Encoded):
    """A split of a dataset of the Hugging Face hub, or one saved by the ``datasets`` library (extra ``hub``)."""

    def __init__(self, dataset: Any, source: str, *, may_lack_classes: bool = False) -> None:
        from datasets import Image as ImageFeature

        for column in ("image", "label"):
            if column not in dataset.column_names:
                raise ValueError(f"{source}: no column {column!r}; it has {', '.join(dataset.column_names)}")
        self._rows, self._source = dataset.cast_column("image", ImageFeature(decode=False)), source
        names, labels = getattr(dataset.features["label"], "names", None), np.asarray(dataset["label"])
        if not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(
                f"{source}: column 'label' must hold integers, it holds {dataset.features['label'].dtype}; names become "
                "numbers with dataset.class_encode_column('label')"
            )
        self._take_labels(labels, names, source, may_lack_classes)

    def read(self, index: int) -> bytes:
        image = self._rows[index]["image"]
        return image["bytes"] if image["bytes"] is not None else Path(image["path"]).read_bytes()

    def where(self, index: int) -> str:
        return f"{self._source}, row {index}"
