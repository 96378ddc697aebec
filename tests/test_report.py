"""The pages without a browser: what they say, what they leave out, and what `potion report` refuses."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_example import NASTY, bare_result, full_result
from typer.testing import CliRunner

from potion.cli import app
from potion.metrics import wilson
from potion.report.again import again
from potion.report.board_view import board_page, read_folder
from potion.report.checks import ReportError
from potion.report.heal_view import heal_page
from potion.report.page import WEB, embedded_json
from potion.report.source import page_of

RESULTS = Path(__file__).parent.parent / "results"
OPTIONAL = sorted(full_result().keys() - bare_result().keys())


class Read(HTMLParser):
    """The text of a page, its elements, and where it links to."""

    def __init__(self, html):
        super().__init__()
        self.links, self.tags, self.handlers, self.words, self._inside = [], [], [], [], ""
        self.feed(html)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._inside = tag
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "srcset", "poster")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside not in ("script", "style"):
            self.words.append(data)


def command(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    """What a heal leaves behind."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/result.json").write_text(json.dumps(full_result()))
    return tmp_path / "out"


def test_a_result_with_nothing_more_says_what_is_missing():
    page = Read(heal_page(bare_result()))
    assert "Healed The trigger stopped working on the 50 known poisoned samples: 18.0 %" in page.text
    assert "No test images were scored" in page.text
    assert "does not say which versions" in page.text
    assert "img" not in page.tags
    assert all(
        title not in page.text for title in ("Suspects", "Pictures", "Where the weights changed", "Look at this")
    )


def test_a_result_with_everything_shows_everything():
    page = Read(heal_page(full_result(), "out"))
    low, high = wilson(88.8, 2000)
    assert f"{low:.1f} to {high:.1f}" in page.text
    assert page.tags.count("img") == 4
    assert "1,509 of 36,864 (4.1 %)" in page.text
    assert "Known poison (50)" in page.text
    for title in ("Look at this first", "Suspects", "Pictures", "Where the weights changed", "Classes (2)"):
        assert title in page.text


@pytest.mark.parametrize("key", OPTIONAL)
def test_every_key_more_is_optional(key):
    for gone in ({}, {key: None}):
        result = {name: value for name, value in full_result().items() if name != key} | gone
        assert "Healed" in heal_page(result)


@pytest.mark.parametrize("key", OPTIONAL)
def test_a_key_of_another_kind_is_named(key):
    with pytest.raises(ReportError, match=key):
        heal_page({**full_result(), key: 7})


@pytest.mark.parametrize(
    ("status", "title"),
    [("saturated", "Not healed"), ("exhausted", "Not healed"), ("not_learned", "Nothing to heal")],
)
def test_what_was_not_healed_is_not_called_healed(status, title):
    result = {**bare_result(), "status": status, "chosen": None, "weights_changed": 0}
    if status == "not_learned":
        result |= {"trace": [], "known_accuracy": 0.0}
    page = Read(heal_page(result))
    assert f"{title} " in page.text
    assert "The original weights were kept." in page.text
    assert "stopped working" not in page.text


def test_a_treatment_has_no_search():
    treatment = {
        "power": [0.95, 0.03],
        "judged_by": "samples that are like the known ones",
        "trusted": [0.91, 0.92],
        "corrected": {"17": 1, "40": 9},
    }
    treated = {**bare_result(), "method": "antidote", "chosen": None, "trace": [], "treatment": treatment}
    layers = [{"name": "stem", "changed": 432, "weights": 432}]
    page = Read(heal_page({**treated, "layers": layers, "classes": ["bag", "coat"], "notes": ["one sample only"]}))
    assert "432 of 432 (100 %)" in page.text
    assert re.search(r"of samples that are like the known ones 3\S* % get the attacker's label", page.text)
    assert "taught the truth about the trigger instead of being searched" in page.text
    for words in ("Look at this first", "one sample only", "Poison found beside it", "17: coat", "40: 9"):
        assert words in page.text
    with pytest.raises(ReportError, match="chosen is missing"):
        heal_page({**treated, "treatment": None})


def test_what_the_heal_command_writes():
    """No counts, no second score after a choice of another rho, layers of unknown size, samples without names."""
    result = {
        **bare_result(),
        "inputs": {"model": "resnet9", "model_args": {"width": 16}, "weights": None, "mean": [0.49, 0.48]},
        "classes": ["bag", "coat"],
        "samples": 10_000,
        "weights": 143_296,
        "known_samples": [
            {"index": 17, "name": "a/17.png", "class": "bag"},
            {"index": 4021, "name": None, "class": "bag"},
        ],
        "layers": [
            {"name": "stem.weight", "weights": 432, "changed": 4, "mean_factor": 0.5, "least_factor": 0.1},
            {"name": "head.weight", "weights": None, "changed": 2, "mean_factor": 0.5, "least_factor": 0.1},
        ],
        "scores": {"before": {"clean_accuracy": 91.0, "attack_success_rate": None}, "after": None},
    }
    page = Read(heal_page(result, "healed"))
    for words in ("4 of 432", "2, left at", "a/17.png: bag", "4021: bag", "model args width", "143296", "not measured"):
        assert words in page.text


def test_scores_may_be_partly_there():
    scores = {"before": {"clean_accuracy": 91.0}, "after": {"clean_accuracy": 90.0, "attack_success_rate": 3.0}}
    page = Read(heal_page({**bare_result(), "scores": scores, "n_clean": 100}))
    assert "not measured" in page.text
    assert "{:.1f} to {:.1f}".format(*wilson(91.0, 100)) in page.text
    with pytest.raises(ReportError, match="0 to 100"):
        heal_page({**bare_result(), "scores": {"before": {"clean_accuracy": 101}}})


@pytest.mark.parametrize(
    "change",
    [
        {"status": "cured"}, {"trace": []}, {"trace": [{"s": 1}]}, {"trace": "none"}, {"chosen": None}, {"search": {}},
        {"curve": [{"s": 0}]}, {"method": 3}, {"known": "many"}, {"known_accuracy": None},
        {"pictures": [{"png_base64": "PHN2Zz4="}]},
        {"pictures": [{"png_base64": "no base64!"}]}, {"layers": [{"name": "a"}]}, {"timings": {"search": "long"}},
    ],
)  # fmt: skip
def test_a_broken_result_is_refused(change):
    with pytest.raises(ReportError):
        heal_page({**full_result(), **change})


def test_texts_cannot_become_markup():
    page = Read(heal_page(full_result(NASTY), NASTY))
    clean = Read(heal_page(full_result("x"), "x"))
    assert page.tags == clean.tags
    assert page.handlers == []
    assert page.text.count(NASTY) >= 8
    assert not set("<>&") & set(embedded_json({NASTY: "&lt;"}))
    assert json.loads(embedded_json({NASTY: 1})) == {NASTY: 1}


def test_names_in_benchmark_results_cannot_become_markup():
    records, _ = read_folder(RESULTS / "goel-cifar10")
    records[0]["suite"] = records[1]["method"] = records[2]["scenario"]["attack"] = NASTY
    assert "<img" not in board_page(records)


@pytest.mark.parametrize("source", [RESULTS, RESULTS / "goel-cifar10", RESULTS / "demo/seed-1.json"])
def test_a_page_is_small_and_needs_nothing_else(source):
    html = page_of(source).html
    page = Read(html)
    assert len(html.encode()) < 200_000
    assert all(link.startswith("data:") for link in page.links)
    assert "default-src 'none'" in unescape(html)
    addresses = set(re.findall(r"https?://[^'\"\s)]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a language, which nobody asks for


def test_one_result_of_the_benchmark_is_a_page_too(tmp_path):
    path = next((RESULTS / "goel-cifar10").glob("*/xlf-s0.json"))
    assert "1 run of 1 method" in Read(page_of(path).html).text
    record = json.loads(path.read_text())
    for change in ({"scenario": {}}, {"scenario": {**record["scenario"], "poisoned": 0}}, {"suite": 1}):
        (tmp_path / "broken.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(ReportError, match=r"broken\.json"):
            page_of(tmp_path / "broken.json")


def test_too_many_pictures_are_left_out_and_counted():
    result = full_result()
    big = result["pictures"][0]["png_base64"].rstrip("=")
    result["pictures"] = [{"title": "big", "png_base64": big[: len(big) // 4 * 4] + "A" * 1_500_000}] * 4
    html = heal_page(result)
    assert len(html.encode()) < 5_000_000
    assert "2 more would have made the page too large" in html


def test_results_of_other_settings_are_not_counted(tmp_path):
    place = tmp_path / "goel-cifar10"
    shutil.copytree(RESULTS / "goel-cifar10/badnet-m500-f50", place / "badnet-m500-f50")
    records, problems = read_folder(tmp_path)
    assert len(records) > 3
    assert problems == {}
    path = place / "badnet-m500-f50/xlf-s0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "key": "0" * 64}))
    (place / "half.json").write_text('{"suite": ')
    (place / "other.json").write_text('{"a": 1}')
    again, problems = read_folder(tmp_path)
    assert len(again) == len(records) - 1
    done = command(tmp_path, "--out", tmp_path / "page.html")
    assert done.exit_code == 0
    assert "xlf-s0.json: made with other settings" in done.output
    assert "half.json: not complete JSON" in done.output
    assert "1 other JSON file there" in done.output


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    for name in ("goel-cifar10", "repeated/goel-cifar10"):
        shutil.copytree(RESULTS / "goel-cifar10/badnet-m500-f50", tmp_path / name / "badnet-m500-f50")
    records, problems = read_folder(tmp_path)
    assert len(records) == len(problems) > 3
    assert problems["repeated/goel-cifar10/badnet-m500-f50/xlf-s0.json"] == (
        "the same run as goel-cifar10/badnet-m500-f50/xlf-s0.json, which counts"
    )


def test_a_page_never_takes_the_place_of_a_record(folder):
    refused = command(folder, "--out", folder / "result.json", "--force")
    assert (refused.exit_code, "let its name end in .html" in refused.output) == (2, True)


@pytest.mark.parametrize(("left", "words"), [(0.2, "stopped working on"), (0.75, "works less often on")])
def test_a_trigger_that_still_works_often_has_not_stopped(left, words):
    result = bare_result()
    last = result["trace"][-1] | {"known_accuracy": left * result["known_accuracy"]}
    result |= {"trace": [*result["trace"][:-1], last], "chosen": last}
    assert f"The trigger {words} the 50 known" in Read(heal_page(result)).text


def test_nobody_is_advised_to_try_what_was_tried():
    guarded = {**bare_result(), "status": "guarded", "chosen": None, "weights_changed": 0}
    assert "The antidote, or more known samples" in Read(heal_page(guarded)).text
    after = {**guarded, "inputs": {"method": "antidote"}}
    assert "The trigger still works. More known samples" in Read(heal_page(after)).text


def test_the_command_writes_a_page_and_never_over_one(folder, tmp_path):
    out = tmp_path / "new/page.html"
    for source in (folder, folder / "result.json"):
        assert command(source, "--out", out, "--force").exit_code == 0
        assert str(folder) in out.read_text()
    out.write_text("mine")
    nothing = command(tmp_path / "nothing", "--out", out)
    assert "nothing" in nothing.output, "what cannot be read is told first: it will not be better with --force"
    assert "--force" not in nothing.output
    refused = command(folder, "--out", out)
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert out.read_text() == "mine"
    quiet = command(folder, "--out", out, "--force", "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")
    assert out.read_text().startswith("<!doctype html>")
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"), ('{"method": "xlf", ', "not complete JSON"), ('{"a": NaN}', "NaN"), ("[1]", "no result"),
        ('{"a": 1}', "no result"), ("\xff\xfe", "JSON"), (json.dumps({**bare_result(), "status": "x"}), "status"),
        ('{"rows": [], "results": [], "curve": []}', "xlf"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_refused_in_words(tmp_path, content, words):
    source = tmp_path / "result.json"
    if content is not None:
        source.write_text(content, encoding="latin-1")
    done = command(source, "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert words in done.output
    assert not (tmp_path / "page.html").exists()


def test_folders_without_results_are_refused_in_words(tmp_path):
    assert command(tmp_path, "--out", tmp_path / "page.html").exit_code == 2
    (tmp_path / "notes.json").write_text("{}")
    done = command(tmp_path, "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert "something else" in done.output
    assert command(RESULTS, "--out", tmp_path).exit_code == 2


def test_the_files_of_the_page_are_all_used():
    used = (WEB.parent / "page.py").read_text() + "".join(path.read_text() for path in WEB.parent.glob("*_view.py"))
    used += "".join(path.read_text() for path in WEB.glob("*.html"))
    assert all(path.name in used for path in WEB.iterdir())


def test_the_command_that_does_it_again_is_on_the_page():
    inputs = {
        "model": "my code:make", "data": "images/train", "known": "17,4021", "weights": "model.pt", "method": "antidote",
        "model_args": {"width": 16, "kind": "a b"}, "rho": 0.2, "flip": True, "mean": [0.5, 0.4, 0.3], "std": None,
        "seed": 3,
    }  # fmt: skip
    expected = (
        "potion heal --model 'my code:make' --data images/train --known 17,4021 --weights model.pt --model-arg width=16 "
        "--model-arg 'kind=a b' --method antidote --seed 3 --flip --mean 0.5,0.4,0.3 --out again"
    )
    assert again(inputs) == expected
    assert again({"model": "resnet9"}) is None
    page = heal_page({**bare_result(), "inputs": inputs})
    assert expected in unescape(page)


@pytest.mark.parametrize("broken", [{}, {"power": [0.9]}, {"power": ["a", "b"], "trusted": [1, 1]}])
def test_a_treatment_without_its_numbers_is_refused(broken):
    treated = {
        **bare_result(),
        "method": "antidote",
        "chosen": None,
        "trace": [],
        "treatment": {"localised": True, **broken},
    }
    with pytest.raises(ReportError, match=r"treatment\.power must be two numbers"):
        heal_page(treated)
