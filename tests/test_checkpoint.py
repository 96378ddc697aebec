"""Weights come in many wrappings; each is read, fitted and written back as it was, and bad ones are refused in words."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch
from backdoor import same
from safetensors.torch import load_file, save, save_file, save_model
from torch import nn
from victim import FROM, loaded, prefixed

from potion.checkpoint import bare, fill, read_checkpoint
from potion.fingerprint import fingerprint, stored_tensors


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


WRAPPINGS = {
    "plain.pt": lambda model: model.state_dict(),
    "parallel.pth": lambda model: prefixed("module.", model),
    "script.pt": lambda model: {"epoch": 3, "model": model.state_dict(), "optimizer": {"lr": 0.1}},
    "lightning.ckpt": lambda model: {
        "state_dict": {**prefixed("model.", model), "criterion.weight": torch.ones(2)},
        "pytorch-lightning_version": "2.0",
    },
    "compiled.pt": lambda model: {"state_dict": prefixed("module._orig_mod.", model)},
}


def filled(path, seed=9):
    """A new network with the weights of a file, and the file."""
    model, checkpoint = network(seed), read_checkpoint(path)
    names = checkpoint.fit(model)
    fill(model, checkpoint.tensors(names))
    return model, checkpoint, names


@pytest.mark.parametrize("name", WRAPPINGS)
def test_every_wrapping_is_read_and_written_back(tmp_path, name):
    source, changed = network(1), network(3)
    content = WRAPPINGS[name](source)
    torch.save(content, tmp_path / name)
    model, checkpoint, names = filled(tmp_path / name)
    assert same(source, model)
    checkpoint.write(stored_tensors(changed), names, tmp_path / f"healed-{name}")
    again = torch.load(tmp_path / f"healed-{name}", weights_only=True)
    assert again.keys() == content.keys()
    assert same(changed, filled(tmp_path / f"healed-{name}")[0])
    if name == "plain.pt":
        assert again._metadata == content._metadata, "also what torch hangs on a state dict"
    if name == "lightning.ckpt":
        assert torch.equal(again["state_dict"]["criterion.weight"], torch.ones(2))
        assert again["pytorch-lightning_version"] == "2.0"


def test_a_prefix_that_the_model_has_and_the_file_lacks(tmp_path):
    torch.save(network(1).state_dict(), tmp_path / "plain.pt")
    wrapped, checkpoint = nn.ModuleDict({"net": network(2)}), read_checkpoint(tmp_path / "plain.pt")
    names = checkpoint.fit(wrapped)
    fill(wrapped, checkpoint.tensors(names))
    assert same(wrapped["net"], network(1))
    more = nn.ModuleDict({"net": network(2), "scale": nn.Linear(1, 1)})
    with pytest.raises(ValueError, match=r"would fit the part of the model below 'net\.': load it there"):
        checkpoint.fit(more)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight


def test_tied_weights_stay_tied(tmp_path):
    torch.save(Tied().state_dict(), tmp_path / "tied.pt")
    save_model(Tied(), tmp_path / "tied.safetensors")  # which keeps one of the two names
    for name, count in (("tied.pt", 2), ("tied.safetensors", 1)):
        model, checkpoint = Tied(), read_checkpoint(tmp_path / name)
        names = checkpoint.fit(model)
        assert len(names["first.weight"]) == count
        new = {key: tensor + 1 for key, tensor in checkpoint.tensors(names).items()}
        checkpoint.write(new, names, tmp_path / f"new-{name}")
        again = read_checkpoint(tmp_path / f"new-{name}")
        assert again.state.keys() == checkpoint.state.keys()
        assert all(torch.equal(again.state[key], checkpoint.state[key] + 1) for key in again.state)


def test_safetensors_keep_their_type_and_metadata(tmp_path):
    half = {name: t.half() if t.is_floating_point() else t for name, t in network(1).state_dict().items()}
    save_file(half, tmp_path / "half.safetensors", metadata={"made": "by hand"})
    model, checkpoint, names = filled(tmp_path / "half.safetensors")
    assert model[0].weight.dtype == torch.float32
    assert torch.equal(model[0].weight, half["0.weight"].float())
    checkpoint.write(checkpoint.tensors(names), names, tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    assert all(torch.equal(again[name], half[name]) and again[name].dtype == half[name].dtype for name in half)
    assert read_checkpoint(tmp_path / "again.safetensors").metadata == {"made": "by hand"}


def test_bare_weights_have_the_fingerprint_of_their_model():
    model = network(1)
    assert fingerprint(bare(stored_tensors(model))) == fingerprint(model)


def test_a_wrong_checkpoint_says_which_names(tmp_path):
    other = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.Linear(2, 2))
    torch.save({"state_dict": prefixed("net.", other)}, tmp_path / "other.pt")
    with pytest.raises(
        ValueError,
        match=r"taking its names without 'net\.', it lacks 1\.bias, 1\.running_mean, 1\.running_var and 1 more, "
        r"and has 3\.weight, 3\.bias that the model does not know$",
    ):
        read_checkpoint(tmp_path / "other.pt").fit(network())
    wide = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    torch.save(wide.state_dict(), tmp_path / "wide.pt")
    with pytest.raises(ValueError, match=r"0\.bias has the shape \(5,\), the model wants \(3,\)"):
        read_checkpoint(tmp_path / "wide.pt").fit(network())


def parts(prefix, **inside):
    """Two linear layers under these names, as a state dict."""
    return prefixed(prefix, nn.ModuleDict({name: nn.Linear(2, size) for name, size in inside.items()}))


def test_the_prefix_of_most_names_is_the_one_that_is_named(tmp_path):
    """Not the one of the alphabetically first name: that is the one which the file lacks."""
    torch.save(parts("net.", features=2, fc=3), tmp_path / "renamed.pt")
    model = nn.ModuleDict({"classifier": nn.Linear(2, 3), "features": nn.Linear(2, 2)})
    with pytest.raises(
        ValueError,
        match=r"without 'net\.', it lacks classifier\.bias, classifier\.weight, and has fc\.weight, fc\.bias that",
    ):
        read_checkpoint(tmp_path / "renamed.pt").fit(model)


def test_prefixes_on_both_sides(tmp_path):
    torch.save(prefixed("module.", network(1)), tmp_path / "parallel.pt")
    wrapped, checkpoint = nn.ModuleDict({"net": network(2)}), read_checkpoint(tmp_path / "parallel.pt")
    names = checkpoint.fit(wrapped)
    fill(wrapped, checkpoint.tensors(names))
    assert same(wrapped["net"], network(1))
    assert names["net.0.weight"] == ["module.0.weight"]


def test_more_beside_the_model_is_not_overlooked_where_both_have_the_same_prefix(tmp_path):
    torch.save({**prefixed("net.", network(1)), "head.weight": torch.ones(2)}, tmp_path / "more.pt")
    with pytest.raises(ValueError, match=r"it lacks nothing, and has head\.weight that the model does not know"):
        read_checkpoint(tmp_path / "more.pt").fit(nn.ModuleDict({"net": network(2)}))


def test_counters_of_a_batch_norm_are_not_needed(tmp_path):
    """Files of old versions and of other tools lack them."""
    state = {name: tensor for name, tensor in network(1).state_dict().items() if "tracked" not in name}
    torch.save(state, tmp_path / "old.pt")
    model, checkpoint, names = filled(tmp_path / "old.pt")
    assert same(network(1), model)
    checkpoint.write(stored_tensors(network(3)), names, tmp_path / "new.pt")
    assert read_checkpoint(tmp_path / "new.pt").state.keys() == state.keys()
    del state["1.running_mean"]
    torch.save(state, tmp_path / "less.pt")
    with pytest.raises(ValueError, match=r"it lacks 1\.running_mean, and has nothing"):
        read_checkpoint(tmp_path / "less.pt").fit(network())


def test_a_file_without_counters_is_healed_and_chosen_from_again(case_on_disk, heal, tmp_path):
    whole = loaded(case_on_disk / "model.pt")[0].state_dict()
    torch.save({name: tensor for name, tensor in whole.items() if "tracked" not in name}, tmp_path / "old.pt")
    heal(weights=tmp_path / "old.pt")
    heal(out=tmp_path / "whole")
    chosen = {**FROM, "from": tmp_path / "out", "out": tmp_path / "again"}
    heal(**chosen)
    found, again = (torch.load(tmp_path / name / "healed.pt", weights_only=True) for name in ("out", "again"))
    expected = loaded(tmp_path / "whole" / "healed.pt")[0].state_dict()
    assert whole.keys() - found.keys() == {"1.num_batches_tracked"}
    assert all(torch.equal(found[name], expected[name]) and torch.equal(again[name], found[name]) for name in found)


class Malicious:
    def __reduce__(self):
        import pathlib

        return pathlib.Path.touch, (pathlib.Path("executed"),)


def test_a_pickle_that_would_run_code_is_refused_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"a": Malicious()}}, "bad.pt")
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(Malicious(), protocol=2))
    for name in ("bad.pt", "raw.pth"):
        with pytest.raises(ValueError, match=f"{name} holds Python objects, which could run code, and was refused"):
            read_checkpoint(name)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("page.pt", b"<html>not found</html>", "page.pt is not a PyTorch file"),
        ("cut.pt", b"PK\x03\x04garbage", "is not a complete PyTorch file"),
        ("cut.safetensors", b"\x10\x00\x00", "is not a complete safetensors file"),
        ("weights", save({"a": torch.ones(2)}), r"weights looks like safetensors: let its name end in \.safetensors"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / name)


@pytest.mark.parametrize("zipped", [True, False])
def test_every_damaged_byte_is_answered_in_words(tmp_path, zipped):
    torch.save(network().state_dict(), tmp_path / "whole.pt", _use_new_zipfile_serialization=zipped)
    content = (tmp_path / "whole.pt").read_bytes()
    causes = set()
    for place in range(0, 1500, 3):
        (tmp_path / "spoilt.pt").write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        try:
            read_checkpoint(tmp_path / "spoilt.pt")
        except ValueError as error:
            assert "spoilt.pt" in str(error)  # noqa: PT017
            causes.add(type(error.__cause__).__name__)
    assert {"UnpicklingError", "RuntimeError", "UnicodeDecodeError"} < causes, "of many kinds"


def test_torchscript_is_refused_without_a_warning_and_with_what_to_do(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, that it grows old
        torch.jit.save(torch.jit.script(network()), tmp_path / "script.pt")
    with pytest.raises(
        ValueError, match=r"script\.pt is a TorchScript archive.*torch\.jit\.load\(.*state_dict"
    ) as caught:
        read_checkpoint(tmp_path / "script.pt")
    assert "weights_only" not in str(caught.value)


def test_a_file_without_weights_is_named(tmp_path):
    torch.save({0: torch.ones(1)}, tmp_path / "numbers.pt")
    with pytest.raises(ValueError, match=r"numbers.pt: no state dict in it"):
        read_checkpoint(tmp_path / "numbers.pt")
    torch.save({"epoch": 3, "loss": [1.0]}, tmp_path / "log.pt")
    with pytest.raises(ValueError, match=r"log.pt: no state dict in it"):
        read_checkpoint(tmp_path / "log.pt")
    with pytest.raises(FileNotFoundError, match="no weights at"):
        read_checkpoint(tmp_path / "nothing.pt")
    with pytest.raises(FileNotFoundError, match="a folder: name the file in it"):
        read_checkpoint(tmp_path)
