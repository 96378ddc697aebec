"""Images from anywhere, their poisoned views, and faults named with file and row."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from potion.attacks import BadNet, LabelSwitch
from potion.batches import DatasetBatches, fetch, shuffled
from potion.data import (
    DATASETS,
    DiskImages,
    HubRows,
    ImageSet,
    ParquetRows,
    PoisonedSet,
    View,
    draw_poison,
    known_share,
    load,
)
from potion.repair import seen

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data beside the checkout")


def images(count=12, size=6):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 200, (count, 1, size, size), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.arange(count) % 4, ("a", "b", "c", "d"))


def test_only_the_poisoned_samples_carry_trigger_and_target():
    base, attack = images(), BadNet(size=2, target=3)
    poisoned = PoisonedSet(base, attack, [1, 5])
    for index in range(len(base)):
        (image, label), (clean, truth) = poisoned[index], base[index]
        if index in (1, 5):
            assert (label, torch.equal(image[:, -2:, -2:], torch.ones(1, 2, 2))) == (3, True)
            assert torch.equal(image[:, :4], clean[:, :4])
        else:
            assert (label, torch.equal(image, clean)) == (truth, True)


def test_a_batch_is_its_samples():
    poisoned = PoisonedSet(images(), BadNet(size=2), [1, 5])
    for inputs, labels in (poisoned.get_batch(torch.tensor([5, 0, 11])), fetch(poisoned, [5, 0, 11])):
        for row, index in enumerate((5, 0, 11)):
            assert torch.equal(inputs[row], poisoned[index][0])
            assert labels[row] == poisoned[index][1]


def test_the_trigger_comes_after_the_augmentation_or_is_baked_in():
    view = View(padding=2, flip=True)
    after = PoisonedSet(images(), BadNet(size=2), range(12), view=view)
    assert (fetch(after, range(12))[0][:, :, -2:, -2:] == 1).all()
    baked = PoisonedSet(images(), BadNet(size=2), range(12), view=view, baked=True)
    inputs, labels = fetch(baked, range(12))
    assert not (inputs[:, :, -2:, -2:] == 1).all()
    assert torch.equal(labels, fetch(after, range(12))[1])
    torch.testing.assert_close(fetch(baked.plain(), range(12))[0], fetch(after.plain(), range(12))[0])


def test_crops_and_flips_are_those_of_each_image():
    """Every augmented image is one of the 81 x 2 that the paper's augmentation can make of it; the draws differ."""
    base = fetch(images(6, 8), range(6))[0]
    view = View(padding=4, flip=True)
    drawn = [view(base) for _ in range(2)]
    assert not torch.equal(*drawn)
    padded = torch.nn.functional.pad(base, (4,) * 4)
    for index in range(6):
        windows = [padded[index, :, y : y + 8, x : x + 8] for y in range(9) for x in range(9)]
        every = windows + [window.flip(-1) for window in windows]
        assert any(torch.equal(drawn[0][index], candidate) for candidate in every)
    assert torch.equal(view.plain()(base), base)


def test_views_resize():
    resized = View(size=12)(fetch(images(3, 6), range(3))[0])
    assert resized.shape == (3, 1, 12, 12)
    assert 0 <= resized.min() <= resized.max() <= 1
    for bad in ({"size": 0}, {"padding": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
            View(**bad)


def test_padding_keeps_the_image_in_the_middle():
    padded = images(2, 6).padded(9)
    assert padded.images.shape == (2, 1, 9, 9)
    assert torch.equal(padded.images[:, :, 1:7, 1:7], images(2, 6).images)
    assert padded.images[:, :, 0].sum() == 0


def test_known_sets_are_nested_and_drawn_from_the_poison():
    labels = torch.arange(1000) % 10
    poison = draw_poison(BadNet(), labels, 50, seed=3)
    assert poison == draw_poison(BadNet(), labels, 50, seed=3) != draw_poison(BadNet(), labels, 50, seed=4)
    assert set(poison) < set(draw_poison(BadNet(), labels, 80, seed=3))
    assert len(set(poison)) == 50
    shares = [set(known_share(poison, count, seed=1)) for count in (1, 5, 25, 50)]
    assert shares[0] < shares[1] < shares[2] < shares[3] == set(poison)
    switched = draw_poison(LabelSwitch(pair=(2, 7)), labels, 100, seed=0)
    assert set(labels[switched].tolist()) == {2, 7}
    with pytest.raises(ValueError, match="cannot know 51 of 50"):
        known_share(poison, 51, seed=0)
    for size in (0, 1001):
        with pytest.raises(ValueError, match=f"cannot poison {size} of 1000"):
            draw_poison(BadNet(), labels, size, seed=0)


def png(pixels, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def pictures(count, size=8, seed=0):
    return np.random.default_rng(seed).integers(0, 255, (count, size, size, 3), dtype=np.uint8)


def write_parquet(path, encoded, labels, *, names=("cat", "dog", "owl"), group=4, columns=("image", "label")):
    rows = pa.array(
        [{"bytes": b, "path": None} for b in encoded], pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    )
    table = pa.table(dict(zip(columns, (rows, pa.array(labels, pa.int64())), strict=True)))
    if names:
        features = {"image": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=group)
    return path


def write_folder(path, pixels, labels, names=("cat", "dog", "owl")):
    for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        (path / names[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path / names[label] / f"{number:03}.png")
    return path


def test_parquet_and_folders_give_the_same_images(tmp_path):
    pixels, labels = pictures(10), [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    expected = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    write_parquet(tmp_path / "train-00000.parquet", [png(p) for p in pixels[:6]], labels[:6])
    write_parquet(tmp_path / "train-00001.parquet", [png(p) for p in pixels[6:]], labels[6:])
    write_folder(tmp_path / "folder" / "val", pixels, labels)
    single = write_parquet(tmp_path / "single.parquet", [png(p) for p in pixels], labels)
    for source, split in ((tmp_path, "train"), (tmp_path / "folder", "test"), (single, "train")):
        found = load(source, split)
        assert torch.equal(found.images, expected)
        assert (found.labels.tolist(), found.classes) == (labels, ("cat", "dog", "owl"))
        streamed = load(source, split, streamed=True, size=8)
        assert isinstance(streamed, DiskImages)
        assert torch.equal(streamed.raw(torch.tensor([9, 0, 5]))[0], expected[[9, 0, 5]])
    assert torch.equal(load(tmp_path / "folder" / "val").images, expected)


def test_streaming_reads_the_same_batches_in_workers(tmp_path):
    pixels, labels = pictures(40), [n % 3 for n in range(40)]
    path = write_parquet(tmp_path / "a.parquet", [png(p) for p in pixels], labels)
    base = load(path, streamed=True, size=8)
    order = base.cheap_order(torch.Generator().manual_seed(0))
    assert sorted(order) == list(range(40))
    poisoned = PoisonedSet(base, BadNet(), [3, 9])
    alone = list(DatasetBatches(poisoned, order, 16))
    shared = list(DatasetBatches(poisoned, order, 16, workers=2))
    for one, two in zip(alone, shared, strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])


def test_row_groups_are_kept_within_the_allowance(tmp_path):
    path = write_parquet(
        tmp_path / "a.parquet", [png(p) for p in pictures(64, 32)], [0, 1] * 32, names=("a", "b"), group=8
    )
    size = pq.ParquetFile(path).metadata.row_group(0).total_byte_size
    rows = ParquetRows([path], allowance=int(2.5 * size))
    order = rows.cheap_order(torch.Generator().manual_seed(0))
    for index in order:
        rows.read(index)
        assert len(rows._kept) <= 2
    groups = [index // 8 for index in order]
    reads = sum(group not in groups[max(0, place - 16) : place] for place, group in enumerate(groups))
    assert reads <= 2 * 8, "an order that reads each group about once"


FAULTS = {
    "truncated image": ({"images": {5: png(pictures(1)[0])[:60]}}, "row 5: the image cannot be decoded"),
    "an empty file": ({"images": {5: b""}}, "row 5: the image is an empty file"),
    "not an image": ({"images": {0: b"hello"}}, "row 0: the image cannot be decoded"),
    "missing image": ({"images": {7: None}}, "row 7: the image is missing"),
    "another size": ({"images": {3: png(pictures(1, 9)[0])}}, "row 3: the image is 9x9, the first"),
    "missing column": ({"columns": ("img", "label")}, "no column 'image'; it has img, label"),
    "label too large": ({"labels": {4: 3}}, "row 4: label 3 is not one of the 3 classes"),
    "negative label": ({"labels": {4: -1}}, "row 4: label -1 is not one of"),
    "missing label": ({"labels": {9: None}}, "row 9: the label is missing"),
    "label gap": ({"labels": {1: 0, 4: 0, 7: 0}, "names": None}, "labels go up to 2, but no sample has label 1"),
    "empty split": ({"count": 0}, "there are no images"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_with_file_and_row(tmp_path, name):
    fault, words = FAULTS[name]
    count = fault.get("count", 10)
    encoded = dict(enumerate(png(picture) for picture in pictures(count))) | fault.get("images", {})
    labels = {row: row % 3 for row in range(count)} | fault.get("labels", {})
    settings = {key: fault[key] for key in ("columns", "names") if key in fault}
    path = write_parquet(tmp_path / "spoilt.parquet", list(encoded.values()), list(labels.values()), **settings)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_faults_of_files_and_folders(tmp_path):
    whole = write_parquet(tmp_path / "a.parquet", [png(p) for p in pictures(10)], [0, 1] * 5)
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cut\.parquet: not a complete parquet file"):
        load(tmp_path / "cut.parquet")
    folder = write_folder(tmp_path / "folder", pictures(4), [0, 1, 2, 0])
    (folder / "dog" / "001.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(ValueError, match=r"001\.png: the image cannot be decoded"):
        load(folder)
    (folder / "emu").mkdir()
    (folder / "emu" / "a.heic").write_bytes(b"")
    with pytest.raises(ValueError, match="emu: the class has no images"):
        load(folder)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match="no subfolders"):
        load(tmp_path / "nothing")
    with pytest.raises(
        FileNotFoundError, match=r"no dataset 'cifar11': there is no such folder .* it is none of cifar10"
    ):
        load("cifar11")
    with pytest.raises(FileNotFoundError, match=r"no cifar10 at .*: put its parquet files there"):
        load("cifar10", root=tmp_path)
    with pytest.raises(ValueError, match="split must be"):
        load("fashion-mnist", "validation")
    with pytest.raises(ValueError, match="size must be given"):
        load(whole, streamed=True)


def test_splits_that_are_not_there_are_refused_and_classes_agree_between_splits(tmp_path):
    both = tmp_path / "both"
    write_folder(both / "train", pictures(3), [0, 1, 2])
    with pytest.raises(FileNotFoundError, match="no test split"):
        load(both, "test")
    write_folder(both / "test", pictures(2), [0, 2])
    test = load(both, "test")
    assert (test.labels.tolist(), test.classes) == ([0, 2], ("cat", "dog", "owl"))
    write_folder(both / "test", pictures(1), [0], names=("yak",))
    with pytest.raises(ValueError, match="yak: there is no such class"):
        load(both, "test")
    single = write_parquet(tmp_path / "single.parquet", [png(picture) for picture in pictures(3)], [0, 1, 2])
    (tmp_path / "odd").mkdir()
    write_parquet(tmp_path / "odd" / "part-0.parquet", [png(pictures(1)[0])], [0])
    with pytest.raises(
        FileNotFoundError, match=r"odd: no train split: neither parquet files called train\*\.parquet nor"
    ):
        load(tmp_path / "odd")
    for unsplit in (both / "train", single):
        with pytest.raises(FileNotFoundError, match="it is all training data"):
            load(unsplit, "test")


def test_an_empty_folder_keeps_the_number_of_its_class(tmp_path):
    write_folder(tmp_path / "images", pictures(3), [0, 2, 2])
    (tmp_path / "images" / "dog").mkdir()
    (tmp_path / "images" / "dog" / ".gitkeep").touch()
    found = load(tmp_path / "images")
    assert (found.labels.tolist(), found.classes) == ([0, 2, 2], ("cat", "dog", "owl"))


def test_a_class_may_have_the_name_of_a_split(tmp_path):
    """As CIFAR-100's trains: a split is a folder of class folders."""
    images = write_folder(tmp_path / "images", pictures(3), [0, 1, 2], names=("owl", "test", "train"))
    assert load(images).classes == ("owl", "test", "train")
    assert seen.test_images(str(images), ("owl", "test", "train")).labels.tolist() == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match="has no splits"):
        load(images, "test")
    for split in ("train", "test"):
        write_folder(tmp_path / "both" / split, pictures(3), [0, 1, 2], names=("owl", "test", "train"))
        assert load(tmp_path / "both", split).classes == ("owl", "test", "train")


def test_images_to_score_may_lack_a_class_that_has_no_name(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [png(picture) for picture in pictures(2)], [1, 3], names=None)
    with pytest.raises(ValueError, match="no sample has label 0"):
        load(path)
    assert seen.test_images(str(path), ("0", "1", "2", "3", "4")).labels.tolist() == [1, 3]
    with pytest.raises(ValueError, match="there is no class '3' in the training data"):
        seen.test_images(str(path), ("0", "1", "2"))


@pytest.mark.parametrize("name", ["./images/train", "~/images", "/images/train", "a/b/c", "images/x.parquet", "here/x"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)  # asking would say that this is missing
    (tmp_path / "here").mkdir()
    with pytest.raises(FileNotFoundError, match=f"no dataset '{name}': there is no such folder or file"):
        load(name)


def test_a_hub_that_cannot_be_asked(tmp_path, monkeypatch, capfd):
    pytest.importorskip("datasets", reason="the extra 'hub' is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # at once, where the network takes a while
    words = r"no dataset 'images/train-v1\.0': there is no such folder here, and the Hugging Face hub did not give it: "
    with pytest.raises(FileNotFoundError, match=words + "ConnectionError"):
        load("images/train-v1.0")
    assert capfd.readouterr().err == ""


def test_one_grey_image_does_not_make_a_set_grey_and_16_bits_keep_their_greys(tmp_path):
    grey = png(pictures(1)[0, :, :, 0])
    path = write_parquet(tmp_path / "mixed.parquet", [grey, *(png(picture) for picture in pictures(3))], [0, 1, 2, 0])
    assert load(path).images.shape == (4, 3, 8, 8)
    ramp = png(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1024)
    path = write_parquet(tmp_path / "deep.parquet", [ramp, ramp], [0, 1], names=("a", "b"))
    assert load(path).images[0].flatten().tolist() == [4 * value for value in range(64)]


def test_damaged_parquet_is_named(tmp_path):
    whole = write_parquet(tmp_path / "a.parquet", [png(picture) for picture in pictures(10)], [0, 1] * 5)
    content = bytearray(whole.read_bytes())
    for place in range(4, 200, 7):
        spoilt = content.copy()
        spoilt[place] ^= 0xFF
        (tmp_path / "b.parquet").write_bytes(bytes(spoilt))
        try:
            load(tmp_path / "b.parquet")
        except ValueError as error:
            assert "b.parquet" in str(error)  # noqa: PT017


def test_a_parquet_set_travels_to_other_processes(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [png(picture) for picture in pictures(10)], [0, 1] * 5)
    rows = ParquetRows([path])
    rows.read(0)
    assert pickle.loads(pickle.dumps(rows)).read(3) == rows.read(3)


def test_repeated_indices_stay_repeated(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [png(picture) for picture in pictures(10)], [0, 1] * 5)
    streamed = load(path, streamed=True, size=8)
    order = shuffled(streamed, [0, 0, 3, 3, 3], torch.Generator().manual_seed(0))
    assert sorted(order) == [0, 0, 3, 3, 3]


def test_a_target_that_is_no_class_is_refused():
    with pytest.raises(ValueError, match="target is class 12, but there are 4 classes"):
        PoisonedSet(images(), BadNet(target=12), [0])


def test_images_of_different_sizes_are_brought_to_one(tmp_path):
    encoded = [png(pictures(1, size)[0]) for size in (8, 20, 33)] + [png(pictures(1, 40)[0], "JPEG")]
    path = write_parquet(tmp_path / "a.parquet", encoded, [0, 1, 2, 0])
    assert load(path, size=16).images.shape == (4, 3, 16, 16)


def test_the_embedded_subset_has_a_name():
    test = load("fashion-mnist", "test")
    assert (test.images.shape, len(test.classes)) == ((2000, 1, 28, 28), 10)


def test_rows_of_the_datasets_library(tmp_path):
    """What a hub id gives, from a dataset of that library made here: there is no hub in the tests."""
    datasets = pytest.importorskip("datasets", reason="the extra 'hub' is not installed")
    pixels, labels = pictures(10), [row % 3 for row in range(10)]
    path = write_parquet(tmp_path / "a.parquet", [png(picture) for picture in pixels], labels)
    rows = HubRows(datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache")), "someone/something")
    found = ImageSet.decoded(rows)
    assert torch.equal(found.images, load(path).images)
    assert (found.labels.tolist(), found.classes) == (labels, ("cat", "dog", "owl"))
    assert rows.where(3) == "someone/something, row 3"
    named = {"image": [png(pixels[0])], "label": ["cat"]}
    with pytest.raises(ValueError, match=r"must hold integers, it holds string; .*class_encode_column\('label'\)"):
        HubRows(datasets.Dataset.from_dict(named).cast_column("image", datasets.Image()), "someone/something")
    with pytest.raises(ValueError, match="someone/something: no column 'image'; it has label"):
        HubRows(datasets.Dataset.from_dict({"label": [0]}), "someone/something")


@needs_shared
@pytest.mark.parametrize(("name", "count", "shape"), [("imagenette", 3925, (3, 160, 160))])
def test_real_data_by_name(name, count, shape):
    found = load(name, "test", root=SHARED)
    assert (len(found), found.images.shape[1:], len(found.classes)) == (count, shape, 10)
    assert name in DATASETS


@needs_shared
def test_the_data_folder_can_come_from_the_environment(monkeypatch):
    monkeypatch.setitem(os.environ, "POTION_DATA", str(SHARED))
    streamed = load("cifar100", "test", streamed=True, size=32)
    assert (len(streamed), len(streamed.classes)) == (10_000, 100)
    assert streamed[7][0].shape == (3, 32, 32)
