"""What the data path costs, from one run on the machine at hand.

    python scripts/bench_loader.py          (or: make bench-core)

1. images/s of device batches / images/s of a DataLoader with PIL transforms, one process, the same images and the same
   augmentation (best times, taken in turns)                                     aim: at least 10
2. peak memory of streaming a parquet file that is many times its allowance
"""

from __future__ import annotations

import io
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from bench_core import interleaved, peak_bytes, seconds
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from potion.batches import DatasetBatches
from potion.data import DiskImages, ParquetRows
from potion.embedded import Embedded

COUNT, BATCH = 4096, 512
ALLOWANCE = 16 * 2**20


class PilSet(Dataset[tuple[Tensor, int]]):
    """The usual way: a PIL image a sample, padded, cropped and flipped one by one."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.pictures = [Image.fromarray(image[0].numpy()) for image in images]
        self.labels = labels.tolist()

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = ImageOps.expand(self.pictures[index], 4)
        left, top = random.randint(0, 8), random.randint(0, 8)
        picture = picture.crop((left, top, left + 32, top + 32))
        if random.random() < 0.5:
            picture = ImageOps.mirror(picture)
        return torch.from_numpy(np.array(picture)).div(255)[None], self.labels[index]


def throughput() -> None:
    scenario = Embedded()
    usual = DataLoader(PilSet(scenario.train.images[:COUNT], scenario.train.labels[:COUNT]), BATCH)
    ours = DatasetBatches(scenario.train_set(), range(COUNT), BATCH)

    def drain(batches: object) -> None:
        for _ in batches:  # type: ignore[attr-defined]
            pass

    ratio = interleaved(lambda: drain(usual), lambda: drain(ours))
    rate = COUNT / min(seconds(lambda: drain(ours)) for _ in range(5))
    print(f"device batches / DataLoader with PIL transforms   {ratio:.1f}   aim >= 10   ({rate:,.0f} images/s)")


def write_large(path: Path) -> None:
    """Noise does not compress: 4,000 pictures of 96x96 pixels are 110 MB."""
    noise = np.random.default_rng(0)
    schema = pa.schema([("image", pa.binary()), ("label", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for _ in range(40):
            encoded = []
            for pixels in noise.integers(0, 255, (100, 96, 96, 3), dtype=np.uint8):
                out = io.BytesIO()
                Image.fromarray(pixels).save(out, "PNG", compress_level=0)
                encoded.append(out.getvalue())
            writer.write_table(pa.table([encoded, [row % 10 for row in range(100)]], schema=schema))


def stream(path: str, count: int) -> None:
    """Read ``count`` shuffled images of the file."""
    images = DiskImages(ParquetRows([Path(path)], allowance=ALLOWANCE), size=64)
    order = images.cheap_order(torch.Generator().manual_seed(0))
    assert order is not None
    for _ in DatasetBatches(images, order[:count], 100):
        pass


def streaming() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_large(path := Path(folder) / "large.parquet")
        few, all_of_it = (peak_bytes(f"stream({str(path)!r}, {count})", "bench_loader") for count in (100, 4000))
        size = path.stat().st_size
    print(
        f"streaming {size / 2**20:.0f} MB with an allowance of {ALLOWANCE / 2**20:.0f} MB: "
        f"peak memory {(all_of_it - few) / 2**20:.0f} MB above that of the first batch alone"
    )


if __name__ == "__main__":
    throughput()
    streaming()
