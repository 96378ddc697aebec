"""The schedule of FACTS 11, and training that a seed decides."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from potion.attacks import BadNet
from potion.data import ImageSet, PoisonedSet, View
from potion.embedded import new_model
from potion.fingerprint import fingerprint
from potion.models import resnet9
from potion.training import ForeignCheckpoint, Recipe, Stopped, learning_rate, train


def test_the_schedule():
    recipe = Recipe(iterations=1000, lr=0.1)
    assert [learning_rate(step, recipe) for step in (0, 4, 9)] == pytest.approx([0.01, 0.05, 0.1])
    assert learning_rate(500, recipe) == pytest.approx(0.1 * (1 - 500 / 1250))
    assert learning_rate(999, recipe) == pytest.approx(0.1 * 0.2, rel=0.01)


def trained(seed=0, indices=None, iterations=6):
    torch.manual_seed(1)
    model = new_model()
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.rand(40, 1, 16, 16, generator=generator), torch.arange(40) % 10)
    recipe = Recipe(iterations=iterations, batch_size=8, lr=0.05, channels_last=True)
    return train(model, data, recipe, indices=indices, seed=seed, progress=False)


def test_a_seed_decides_everything():
    state = torch.get_rng_state()
    one, two = trained(seed=0), trained(seed=0)
    assert fingerprint(one) == fingerprint(two) != fingerprint(trained(seed=1))
    assert not one.training
    torch.manual_seed(1)
    new_model()
    after = torch.get_rng_state()
    trained()
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(state, after)


def test_samples_left_out_are_not_seen():
    data = TensorDataset(torch.full((40, 1, 16, 16), float("nan")), torch.arange(40) % 10)
    data.tensors[0][:20] = torch.rand(20, 1, 16, 16)
    model = train(new_model(), data, Recipe(iterations=5, batch_size=8), indices=range(20), progress=False)
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_resumed_training_ends_in_the_same_bits(tmp_path, optimizer):
    """Killed after four steps and started again: the same weights as in one go."""

    class Killed(Exception):  # noqa: N818
        pass

    class Dies(TensorDataset):
        left = 10**9

        def get_batch(self, indices):
            if Dies.left == 0:
                raise Killed
            Dies.left -= 1
            x, y = self[indices]
            noise = torch.randn_like(x) + np.random.rand() + random.random()  # augmentation: all states must come back
            return x + 0.1 * noise, y

    generator = torch.Generator().manual_seed(0)
    data = Dies(torch.rand(40, 1, 16, 16, generator=generator), torch.arange(40) % 10)
    recipe = Recipe(iterations=9, batch_size=16, lr=0.01, optimizer=optimizer)

    def go(**more):
        torch.manual_seed(1)
        return train(new_model(), data, recipe, seed=3, progress=False, save_every=2, **more)

    whole, path = go(), tmp_path / "run.pt"
    Dies.left = 6  # one of them tells the run apart from others
    with pytest.raises(Killed):
        go(checkpoint=path)
    assert path.exists()
    Dies.left = 6
    resumed = go(checkpoint=path)
    assert fingerprint(resumed) == fingerprint(whole)
    assert not path.exists()
    Dies.left = 6
    with pytest.raises(Killed):
        go(checkpoint=path)
    Dies.left = 10**9
    torch.manual_seed(1)
    others = Dies(data.tensors[0], (data.tensors[1] + 1) % 10)
    with pytest.raises(ValueError, match="checkpoint of another training run"):
        train(new_model(), others, recipe, seed=3, progress=False, checkpoint=path)
    (tmp_path / "cut.pt").write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"cut\.pt is not a complete checkpoint"):
        go(checkpoint=tmp_path / "cut.pt")
    with pytest.raises(ValueError, match="checkpoint of another training run"):
        train(new_model(), data, recipe, seed=4, progress=False, checkpoint=path)


@pytest.mark.parametrize("more", [{"precision": "bfloat16"}, {"optimizer": "adamw", "lr": 1e-3}, {"warm_up": 0.5}])
def test_other_recipes_learn_too(more):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    data = TensorDataset(torch.rand(40, 1, 16, 16, generator=generator) + labels[:, None, None, None], labels)
    torch.manual_seed(0)
    model = resnet9(2, channels=1, width=4, mean=(0.0,), std=(1.0,))
    train(model, data, Recipe(**{"iterations": 60, "batch_size": 20, "lr": 0.05, **more}), progress=False)
    with torch.no_grad():
        assert (model(data.tensors[0]).argmax(1) == labels).float().mean() > 0.9


def test_resuming_with_workers_is_exact_where_the_augmentation_is_ours(tmp_path):
    base = ImageSet(
        torch.randint(0, 255, (40, 1, 16, 16), dtype=torch.uint8), torch.arange(40) % 10, tuple("abcdefghij")
    )
    data = PoisonedSet(base, BadNet(), [3], view=View(padding=2, flip=True))
    recipe = Recipe(iterations=6, batch_size=16, lr=0.01)

    def go(workers, **more):
        torch.manual_seed(1)
        return fingerprint(train(new_model(), data, recipe, progress=False, workers=workers, save_every=2, **more))

    class Killed(Exception):  # noqa: N818
        pass

    def dies(inputs, outputs, labels):
        dies.left -= 1
        if dies.left == 0:
            raise Killed
        return torch.nn.functional.cross_entropy(outputs, labels)

    dies.left = 5
    with pytest.raises(Killed):
        go(1, checkpoint=tmp_path / "run.pt", objective=dies)
    assert go(1, checkpoint=tmp_path / "run.pt") == go(0) == go(2)


def test_an_epoch_without_dropping_sees_every_sample():
    seen = []

    class Watched(TensorDataset):
        def get_batch(self, indices):
            seen.extend(indices.tolist())
            return self[indices]

    data = Watched(torch.rand(21, 1, 16, 16), torch.arange(21) % 10)
    train(new_model(), data, Recipe(iterations=3, batch_size=8), drop_rest=False, progress=False)
    assert sorted(seen) == list(range(21))
    with pytest.raises(ValueError, match="nothing to train on"):
        train(new_model(), data, Recipe(iterations=3), indices=[], progress=False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: compiling takes minutes on a CPU")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own
def test_compiled_training_leaves_a_plain_model():
    data = TensorDataset(torch.rand(40, 1, 16, 16), torch.arange(40) % 10)
    recipe = Recipe(iterations=4, batch_size=20, compile=True, precision="bfloat16", channels_last=True)
    model = train(new_model(), data, recipe, device="cuda", progress=False)
    assert model.state_dict().keys() == new_model().state_dict().keys()
    assert model(data.tensors[0].cuda()).isfinite().all()


@pytest.mark.parametrize(
    "bad",
    [{"iterations": 0}, {"batch_size": 0}, {"lr": 0.0}, {"optimizer": "lion"}, {"precision": "int8"}, {"warm_up": 2.0}],
)
def test_recipes_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        Recipe(**bad)


def test_a_training_that_is_stopped_writes_its_checkpoint_and_goes_on(tmp_path):
    data = TensorDataset(torch.rand(40, 1, 16, 16), torch.arange(40) % 10)
    recipe = Recipe(iterations=6, batch_size=8, lr=0.05)
    checkpoint, seen = tmp_path / "run.pt", []

    def run(**more):
        torch.manual_seed(1)
        return train(new_model(), data, recipe, progress=False, **more)

    with pytest.raises(Stopped, match="stopped after 3 of 6 iterations"):
        run(checkpoint=checkpoint, between=lambda done: done == 3)
    assert checkpoint.exists()
    again = run(checkpoint=checkpoint, between=lambda done: bool(seen.append(done)))
    assert seen == [4, 5], "it went on, and nobody is asked whether to stop at the end"
    assert fingerprint(again) == fingerprint(run())
    assert not checkpoint.exists()


def test_a_complete_checkpoint_can_be_kept(tmp_path):
    data = TensorDataset(torch.rand(40, 1, 16, 16), torch.arange(40) % 10)
    recipe = Recipe(iterations=2, batch_size=8, lr=0.05)
    torch.manual_seed(1)
    one = train(new_model(), data, recipe, progress=False, checkpoint=tmp_path / "run.pt", keep_checkpoint=True)
    torch.manual_seed(1)
    model = new_model()
    two = train(model, data, recipe, progress=False, checkpoint=tmp_path / "run.pt", keep_checkpoint=True)
    assert fingerprint(one) == fingerprint(two)
    with pytest.raises(ForeignCheckpoint, match="the checkpoint of another training run"):
        train(new_model(), data, recipe, seed=7, progress=False, checkpoint=tmp_path / "run.pt")
