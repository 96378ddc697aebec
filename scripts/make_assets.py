"""Make potion/assets again: the Fashion-MNIST subset and the three embedded checkpoints.

    python scripts/make_assets.py /usr/share/datasets/fashion-mnist

The folder is the one of Debian's package ``dataset-fashion-mnist`` (MIT licence). Takes about half an hour on two cores;
run twice on one machine it writes the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save_model

from potion.embedded import ASSETS, Embedded, new_model
from potion.runtime import forked_rng
from potion.training import train

NAMES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
SIZES = {"train": ("train", 10_000), "test": ("t10k", 2_000)}


def read_idx(path: Path) -> np.ndarray:
    """An array in the IDX format: two zero bytes, type 8 (uint8), the number of dimensions, their sizes, the data."""
    raw = gzip.decompress(path.read_bytes())
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", dimensions, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    return out.getvalue()


def write_subset(source: Path) -> None:
    """The first images of each split: the original order is random already."""
    features = {"image": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
    for split, (prefix, count) in SIZES.items():
        images = read_idx(source / f"{prefix}-images-idx3-ubyte.gz")[:count]
        labels = read_idx(source / f"{prefix}-labels-idx1-ubyte.gz")[:count].astype(np.int64)
        rows = [{"bytes": png(image), "path": None} for image in images]
        image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        table = pa.table({"image": pa.array(rows, image_type), "label": pa.array(labels)})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, ASSETS / f"{split}.parquet", compression="zstd", compression_level=19)


def train_models(only: list[str]) -> None:
    scenario = Embedded()
    everything, poison = set(range(len(scenario.train))), scenario.poison()
    left_out = {"victim": [], "retrain_half": scenario.known(scenario.poisoned // 2), "retrain_clean": poison}
    for name in only or left_out:
        with forked_rng(scenario.seed):
            model = new_model()
        indices = sorted(everything - set(left_out[name]))
        train(model, scenario.train_set(), scenario.recipe, indices=indices, seed=scenario.seed)
        save_model(model, str(ASSETS / f"{name}.safetensors"), metadata={"licence": "Apache-2.0"})
        print(name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2)  # the order of float additions, and so the bits, depend on it
    write_subset(Path(sys.argv[1]))
    train_models(sys.argv[2:])
