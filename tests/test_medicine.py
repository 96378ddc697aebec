"""Medicine: corrected labels and transplants, in the batches that a model is taught with."""

from __future__ import annotations

import torch
from patches import images, several, trigger
from torch.utils.data import TensorDataset
from victim import factory

from potion.medicine import Medicine, taught
from potion.patch import Patch

CPU = torch.device("cpu")


def test_medicine_corrects_labels_and_leaves_the_targets_images_alone():
    data = TensorDataset(images(40), torch.arange(40) % 4)
    medicine = Medicine(data, {5: 3, 9: 0}, [trigger()], CPU, share=0.5, seed=0)
    inputs, labels = medicine.get_batch(torch.arange(40))
    expected = torch.arange(40) % 4
    expected[5], expected[9] = 3, 0
    assert torch.equal(labels, expected)
    changed = (inputs != data.tensors[0]).flatten(1).any(1)
    assert 0 < int(changed.sum()) <= 20
    assert not changed[labels == 1].any()
    assert torch.equal(data.tensors[0], images(40)), "the data themselves stay as they are"


def test_medicine_gives_each_eighth_a_trigger_and_moves_every_other_one():
    data = TensorDataset(images(60), torch.arange(60) % 4)
    shown, _ = Medicine(data, {}, several(), CPU, share=0.8, seed=3).get_batch(torch.arange(60))
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
    inputs, _ = Medicine(data, {}, [waves], CPU, share=0.2, seed=0).get_batch(torch.arange(2))
    assert torch.equal(inputs, data.tensors[0])


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
