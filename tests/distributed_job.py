"""Heal under torch.distributed, in one process or in many, and save what came out.

    python -m torch.distributed.run --nproc-per-node N tests/distributed_job.py replicas|shards METHOD FOLDER

Alone, without torch.distributed: python tests/distributed_job.py replicas METHOD FOLDER alone
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import Dataset

import potion
from potion.distributed import whole

CLASSES, SIDE = 4, 8


class Noisy(Dataset):
    """Images that are augmented from the global random state, as torchvision's transforms do."""

    def __init__(self, count=150, poison=30, noise=0.3):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.arange(count) % CLASSES
        self.images = torch.randn(count, 3, SIDE, SIDE, generator=generator)
        self.images[torch.arange(count), 0, self.labels] += 3
        self.images[:poison, 1, :2, :2], self.labels[:poison], self.noise = 4, 0, noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index] + self.noise * torch.randn(3, SIDE, SIDE), int(self.labels[index])


def victim():
    """A small network that has learned the patch; the same in every process."""
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7), nn.ReLU(), nn.Flatten(), nn.Linear(7 * 36, 33), nn.ReLU()]
    model = nn.Sequential(*body, nn.Linear(33, CLASSES))
    data = Noisy(noise=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.images), data.labels).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def refused():
    """Layouts that would quietly give wrong sums are refused in words, in every process."""
    mesh, grid = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "pieces"))
    partly = victim()
    fully_shard(partly[4], mesh=mesh)
    hybrid = fully_shard(victim(), mesh=grid)
    plan = {"4": ColwiseParallel(), "6": RowwiseParallel()}
    split = parallelize_module(victim(), mesh, plan)
    cases = {
        "sharded in part": partly,
        "along one dimension|in one dimension": hybrid,
        "in another way than FSDP2": split,
        "pass model.module": nn.parallel.DistributedDataParallel(victim()),
    }
    for message, model in cases.items():
        with pytest.raises(ValueError, match=message):
            potion.heal(model, Noisy(), range(12), device="cpu", progress=False)
    bad = Noisy()
    bad.labels[140] = 9  # in the share of one process only
    with pytest.raises((ValueError, RuntimeError), match=r"train_set has labels|1 of 2 processes failed"):
        potion.heal(victim(), bad, range(12), batch_size=16, device="cpu", progress=False)


def main(mode, method, folder):
    if mode == "refused":
        refused()
        return
    model, data = victim(), Noisy()
    if mode == "shards":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model[0], model[4]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    held = sum(p.to_local().numel() if mode == "shards" else p.numel() for p in model.parameters())
    state = torch.get_rng_state()
    result = potion.heal(
        model, data, range(12), method, potion.PTN(step=1.3), batch_size=16, device="cpu", progress=False,
        unaugmented=Noisy(noise=0.0),
    )  # fmt: skip
    assert torch.equal(torch.get_rng_state(), state)
    assert (result.model is model) == (mode == "shards")
    healed = {name: whole(p).clone() for name, p in result.model.named_parameters()}
    rank = dist.get_rank() if dist.is_initialized() else 0
    if mode == "shards":
        result.patch.revert(model)
        back = {name: whole(p) for name, p in model.named_parameters()}
        assert all(torch.equal(back[name], p) for name, p in victim().named_parameters()), "reverted bit by bit"
        result.patch.apply(model)
        with torch.no_grad():  # the gathered weights are the repaired ones
            shown = model(data.images)
        torch.testing.assert_close(shown, torch.func.functional_call(victim(), healed, data.images))
    result.patch.save(Path(folder) / f"patch-{rank}.safetensors")
    keep = {
        "trace": [vars(step) for step in result.trace],
        "status": result.status.value,
        "healed": healed,
        "held": held,
    }
    if mode != "shards":
        keep["retain"], keep["forget"] = result.retain, result.forget
    torch.save(keep, Path(folder) / f"result-{rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 4:
        main(*sys.argv[1:4])  # alone
    else:
        dist.init_process_group("gloo")
        main(*sys.argv[1:])
        dist.destroy_process_group()
        # A mesh keeps gloo's threads past this point; one that lets go of its last tensor while the interpreter is
        # being taken down aborts the process ("terminate called without an active exception"). So no taking down.
        sys.stdout.flush()
        os._exit(0)
