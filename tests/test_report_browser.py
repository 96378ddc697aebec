"""The pages in a real browser: what they show is what Python finds in the same files, and nothing leaves them."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from report_example import NASTY, full_result
from typer.testing import CliRunner

from potion.cli import app
from potion.report.heal_view import heal_page
from potion.report.source import page_of

webdriver = pytest.importorskip("selenium.webdriver", reason="the browser's tests need selenium")

RESULTS = Path(__file__).parent.parent / "results"
CONTRAST = Path(__file__).with_name("contrast.js").read_text()
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--window-size=1100,900"),
)
FOLDER = "out/my heal"


@pytest.fixture(scope="module")
def chrome():
    """One browser for all tests."""
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium with a chromedriver here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, healed):
    """The pages, by name; *own* is the one that ``potion heal`` left."""
    folder = tmp_path_factory.mktemp("pages")
    content = {
        "heal": heal_page(full_result(), FOLDER),
        "nasty": heal_page(full_result(NASTY), NASTY),
        "long": heal_page(full_result("x" * 150), "x" * 150),
        "demo": page_of(RESULTS / "demo/seed-0.json").html,
        "board": page_of(RESULTS / "goel-cifar10").html,
        "own": (healed[0] / "report.html").read_text(),
    }
    for name, html in content.items():
        (folder / f"{name}.html").write_text(html)
    return folder


@pytest.fixture
def browser(chrome, pages):
    """Open a page by name, as bright and wide as wanted."""

    def opened(name, scheme="light", width=1100):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chrome.get((pages / f"{name}.html").as_uri())
        return chrome

    return opened


def text(page, css):
    return page.execute_script("return document.querySelector(arguments[0]).textContent", css).replace("\xa0", " ")


def move(page, rho):
    page.execute_script(
        "const rho = document.getElementById('rho'); rho.value = arguments[0]; rho.dispatchEvent(new Event('input'))",
        rho,
    )


def choose(page, name, value):
    page.execute_script(
        "const box = document.getElementById(arguments[0]); box.value = arguments[1];"
        "box.dispatchEvent(new Event('change'))",
        name,
        value,
    )


def table(page):
    """The leaderboard: method -> cells, in the order of the page."""
    rows = page.execute_script(
        "return [...document.querySelectorAll('#leaderboard tbody tr')].map(row => [...row.cells].map(cell => "
        "cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value)))"
    )
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("rho", [0.2, 0.05, 0.3, 0.46, 0.7, 0.99, 0])
def test_the_slider_stops_where_the_search_would(browser, rho):
    page, result = browser("heal"), full_result()
    assert page.find_element("id", "rho").get_attribute("value") == "0.2"
    move(page, rho)
    goal = rho * result["known_accuracy"] + 1e-9
    stop = next((step for step in result["trace"] if step["known_accuracy"] <= goal), None)
    known = "not reached" if stop is None else f"{100 * stop['known_accuracy']:.1f} %"
    assert text(page, "#read-known") == known
    assert text(page, "#read-weights") == ("\N{EN DASH}" if stop is None else f"{stop['selected']:,}")
    command = ["potion", "heal", "--from", FOLDER, "--rho", f"{rho:g}", "--out", f"{FOLDER}-rho-{rho:g}"]
    assert text(page, "#command") == shlex.join(command)
    assert page.find_element("id", "command-box").is_displayed() == (stop is not None)
    advice = f"The search never looked this far: it takes a new one, on the data, with --rho {rho:g}."
    assert text(page, "#read-note") == ("" if stop else advice)
    assert bool(page.find_elements("css selector", "#curve line.stop")) == (stop is not None)


def test_the_command_on_the_page_of_a_heal_makes_that_repair(browser, case_on_disk, healed, monkeypatch):
    monkeypatch.chdir(case_on_disk)  # where the heal was typed
    folder, _ = healed
    page, record = browser("own"), json.loads((folder / "result.json").read_text())
    move(page, 0.6)
    weights = text(page, "#read-weights").replace(",", "")
    command = shlex.split(text(page, "#command"))
    assert command[:2] == ["potion", "heal"]
    done = CliRunner().invoke(app, command[1:])
    assert done.exit_code == 0, done.output
    chosen = json.loads((Path(command[-1]) / "result.json").read_text())
    assert chosen["chosen"]["selected"] == int(weights) < record["chosen"]["selected"]
    shutil.rmtree(command[-1])


def test_arrow_keys_move_the_slider_and_the_readout_is_announced(browser):
    page = browser("heal")
    slider = page.find_element("id", "rho")
    slider.send_keys("\ue014")  # arrow right
    assert text(page, "#rho-value") == "0.21"
    assert page.find_element("id", "readout").get_attribute("aria-live") == "polite"
    assert "18.0" in slider.get_attribute("aria-valuetext")


def test_a_rho_between_the_places_of_the_slider_is_kept(chrome, tmp_path):
    result = full_result()
    result["search"]["rho"] = 0.125
    (tmp_path / "page.html").write_text(heal_page(result, "out"))
    chrome.get((tmp_path / "page.html").as_uri())
    assert text(chrome, "#rho-value") == "0.125"
    assert "--rho 0.125 " in text(chrome, "#command")


def test_a_search_that_came_to_its_end_offers_no_command_for_less(chrome, tmp_path):
    result = {**full_result(), "status": "saturated", "chosen": None}
    result["search"]["rho"] = 0.1
    (tmp_path / "page.html").write_text(heal_page(result, "out"))
    chrome.get((tmp_path / "page.html").as_uri())
    assert "came to its end" in text(chrome, "#read-note")
    assert not chrome.find_element("id", "command-box").is_displayed()
    move(chrome, 0.5)
    assert text(chrome, "#read-note") == ""
    assert chrome.find_element("id", "command-box").is_displayed()


def test_the_demo_shows_what_its_repair_costs(browser):
    page = browser("demo")
    saved = json.loads((RESULTS / "demo/seed-0.json").read_text())
    chosen = next(each for each in saved["results"] if (each["method"], each["known"]) == ("xlf", 100))["chosen"]
    assert text(page, "#read-weights") == f"{chosen['selected']:,}"
    assert text(page, "#read-clean") in {f"{point['clean']:.1f} %" for point in saved["curve"]}
    assert len(page.find_elements("css selector", "#curve g.line")) == 3
    assert not page.find_element("id", "command-box").is_displayed()


def test_a_header_sorts_the_leaderboard_and_back(browser):
    page = browser("board")
    healed = page.find_elements("css selector", "#leaderboard th")[1]
    values = [row[0] for row in table(page).values()]
    assert len(values) > 3
    assert values == sorted(values, reverse=True)
    assert healed.get_attribute("aria-sort") == "descending"
    healed.find_element("tag name", "button").click()
    assert [row[0] for row in table(page).values()] == values[::-1]
    assert healed.get_attribute("aria-sort") == "ascending"
    healed.find_element("tag name", "button").click()
    assert [row[0] for row in table(page).values()] == values
    page.find_elements("css selector", "#leaderboard th button")[0].click()
    assert list(table(page)) == sorted(table(page), key=str.lower)
    assert healed.get_attribute("aria-sort") == "none"


def test_the_leaderboard_is_the_mean_of_seeds_and_then_of_scenarios(browser):
    cells = {}
    for path in (RESULTS / "goel-cifar10").glob("*/xlf-*.json"):
        record = json.loads(path.read_text())
        cells.setdefault((record["scenario"]["poisoned"], record["known"]), []).append(record)
    page = browser("board")

    def compare(mine):
        healed, damage, clean, scenarios, _, runs = table(page)["XLF + PTN"]
        for shown, key in ((healed, "healed"), (damage, "damage"), (clean, "clean_accuracy")):
            assert shown == pytest.approx(fmean(fmean(run[key] for run in cell) for cell in mine), abs=1e-3)
        assert (scenarios, runs) == (len(mine), sum(map(len, mine)))

    compare(list(cells.values()))
    assert table(page)["None"][3] == len(cells)  # the poisoned model stands at every share
    choose(page, "poisoned", "500")
    compare([cell for (poisoned, _), cell in cells.items() if poisoned == 500])
    choose(page, "share", "one")
    compare([cells[500, 1]])
    page.find_element("css selector", "#filters button").click()
    page.execute_async_script("setTimeout(arguments[0])")
    compare(list(cells.values()))


def test_a_filter_narrows_the_rows_and_keeps_them_sorted(browser):
    page = browser("board")
    before = table(page)
    assert len(page.find_elements("css selector", "#scenarios article")) == 3
    runs = sum(row[-1] for row in before.values())
    choose(page, "poisoned", "1000")
    choose(page, "share", "20 %")  # where not every method was run
    after = table(page)
    assert 0 < len(after) < len(before)
    assert all(row[-1] < before[method][-1] for method, row in after.items())
    assert [row[0] for row in after.values()] == sorted((row[0] for row in after.values()), reverse=True)
    assert len(page.find_elements("css selector", "#scenarios article")) == 1
    assert text(page, "#count").endswith(f" of {runs} runs")


def test_a_method_can_be_hidden_from_the_curves(browser):
    page = browser("board")
    page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
    lines = len(page.find_elements("css selector", "#scenarios .look-0"))
    assert lines == 6
    page.find_element("css selector", "#legend button").click()
    page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
    assert not page.find_elements("css selector", "#scenarios .look-0")


@pytest.mark.parametrize("name", ["heal", "board"])
def test_dark_and_light(browser, name):
    def shades(page):
        script = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
        return page.execute_script(script)

    light, dark = shades(browser(name, "light")), shades(browser(name, "dark"))
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page = browser(name, "light")
    page.find_element("id", "theme").click()
    assert shades(page) == dark
    page.find_element("id", "theme").click()
    assert shades(page) == light


@pytest.mark.parametrize("name", ["heal", "long", "own", "demo", "board"])
def test_a_phone_never_scrolls_sideways(browser, name):
    page = browser(name, width=390)
    page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390


def test_texts_of_a_file_are_texts(browser):
    page = browser("nasty")
    assert page.execute_script("return document.querySelectorAll('img').length") == len(full_result()["pictures"])
    assert page.execute_script("return [...document.scripts].length") == 2
    assert NASTY in text(page, ".warnings li")
    assert NASTY in text(page, ".bars code")
    assert text(page, "#command").startswith(f"potion heal --from {shlex.quote(NASTY)} ")


def test_the_page_runs_no_script_but_its_own(browser):
    page = browser("heal")
    page.execute_script(
        "const script = document.createElement('script'); script.textContent = 'window.harmed = true';"
        "document.body.append(script)"
    )
    assert page.execute_script("return window.harmed") is None
    assert "Content Security Policy" in str(page.get_log("browser"))


@pytest.mark.parametrize("name", ["heal", "nasty", "own", "demo", "board"])
def test_a_page_asks_for_nothing_and_complains_about_nothing(browser, pages, name):
    browser("heal").get_log("performance")
    page = browser(name)
    page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 50))")
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [(pages / f"{name}.html").as_uri()]
    assert page.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["heal", "demo", "board"])
def test_everything_can_be_told_from_its_ground(browser, name, scheme):
    page = browser(name, scheme)
    page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
    worst, where = page.execute_script(CONTRAST)
    assert worst >= 1, where  # WCAG AA: 4.5 for text, 3 for graphics
