"""Medicine: corrected labels and transplants, in the batches that a model is taught with."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise

import pytest
import torch
from patches import images, several, trigger
from torch import nn
from torch.utils.data import TensorDataset
from victim import factory

from potion.antidote.medicine import Medicine, taught
from potion.batches import TwoStage, fetch, shuffled
from potion.fingerprint import fingerprint
from potion.patch import Patch

CPU = torch.device("cpu")


def test_medicine_corrects_labels_and_leaves_the_targets_images_alone():
    data = TensorDataset(images(40), torch.arange(40) % 4)
    medicine = Medicine(data, {5: 3, 9: 0}, [trigger()], CPU, share=0.5, seed=0)
    inputs, labels = fetch(medicine, range(40))
    expected = torch.arange(40) % 4
    expected[5], expected[9] = 3, 0
    assert torch.equal(labels, expected)
    changed = (inputs != data.tensors[0]).flatten(1).any(1)
    assert 0 < int(changed.sum()) <= 20
    assert not changed[labels == 1].any()
    assert torch.equal(data.tensors[0], images(40)), "the data themselves stay as they are"


def test_medicine_gives_each_eighth_a_trigger_and_moves_every_other_one():
    data = TensorDataset(images(60), torch.arange(60) % 4)
    shown, _ = fetch(Medicine(data, {}, several(), CPU, share=0.8, seed=3), range(60))
    generator, expected = torch.Generator().manual_seed(3), images(60)
    for group, rows in enumerate(torch.randperm(60, generator=generator)[:48].chunk(8)):
        one = several()[int(torch.randint(4, (), generator=generator))]
        one = one.moved(generator) if group % 2 else one
        others = rows[rows % 4 != 1]
        expected[others] = one.onto(expected[others])
    torch.testing.assert_close(shown, expected)


def test_a_batch_too_small_for_a_transplant_gets_none():
    data = TensorDataset(images(2), torch.zeros(2, dtype=torch.long))
    waves = trigger(domain="waves", mask=torch.ones(6, 5, dtype=torch.bool))
    inputs, _ = fetch(Medicine(data, {}, [waves], CPU, share=0.2, seed=0), range(2))
    assert torch.equal(inputs, data.tensors[0])


class OnDisk(TwoStage):
    """Images in groups, as a file has them; where they are read is written down."""

    def __init__(self, count, log):
        self.pixels = (255 * images(count)).byte()
        self.labels, self.log = torch.arange(count) % 4, log

    def __len__(self):
        return len(self.labels)

    def raw(self, indices):
        with self.log.open("a") as log:
            log.writelines(f"{os.getpid()} {index // 10}\n" for index in indices.tolist())
        return self.pixels[indices], self.labels[indices]

    def prepare(self, pixels, indices):
        return pixels.float() / 255

    def cheap_order(self, generator):
        groups = torch.randperm(len(self) // 10, generator=generator).tolist()
        return [10 * group + row for group in groups for row in range(10)]


@pytest.mark.parametrize("workers", [0, 2])
def test_images_on_disk_are_read_by_workers_and_group_by_group(tmp_path, workers):
    def learned(workers, log):
        torch.manual_seed(0)
        model, data = nn.Sequential(nn.Flatten(), nn.Linear(96, 4)), OnDisk(80, tmp_path / log)
        medicine = Medicine(data, {5: 3}, several(), CPU, share=0.5, seed=0)
        return taught(
            model, medicine, range(80), epochs=2, batch_size=16, lr=0.1, seed=0, progress=False, workers=workers
        )

    assert fingerprint(learned(workers, "a")) == fingerprint(learned(0, "b"))
    processes, groups = zip(*(line.split() for line in (tmp_path / "a").read_text().splitlines()), strict=True)
    assert (str(os.getpid()) in processes) == (workers == 0)
    per_group = Counter(groups)
    assert set(per_group.values()) == {20}, "each sample once an epoch"
    assert sum(one != two for one, two in pairwise(groups)) < 40, "in random order it would be some 140 times"


def test_copies_of_a_sample_on_disk_are_not_side_by_side(tmp_path):
    """They would all be in one batch, and the others would hear nothing of it."""
    data, wanted = OnDisk(400, tmp_path / "log"), [*range(400), *[5] * 8, *[333] * 8]
    order = shuffled(data, wanted, torch.Generator().manual_seed(0))
    assert sorted(order) == sorted(wanted)
    for index in (5, 333):
        batches = [sum(each == index for each in order[begin : begin + 16]) for begin in range(0, len(order), 16)]
        assert max(batches) <= 3
    once = [index for index in order if index not in (5, 333)]
    assert [index // 10 for index in once[:9]] == [once[0] // 10] * 9, "all others are read group by group"
    assert order != shuffled(data, wanted, torch.Generator().manual_seed(1))


def test_a_pruned_network_is_taught_without_the_weights_that_it_lacks():
    torch.manual_seed(0)
    model = factory(4)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(torch.rand_like(p) > 0.5)
    inputs, labels = torch.rand(64, 3, 10, 10), torch.arange(64) % 4
    medicine = Medicine(TensorDataset(inputs, labels), {}, [], CPU, share=0.2, seed=0)
    student = taught(model, medicine, range(64), epochs=2, batch_size=16, lr=0.05, seed=0, progress=False)
    patch = Patch.towards(model, student)
    assert patch.count > 0
    patch.write(model)
    for one, other in zip(model.parameters(), student.parameters(), strict=True):
        torch.testing.assert_close(one, other)
