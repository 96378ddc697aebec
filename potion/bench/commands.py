"""``potion bench``: list, run, status, tables, figures, replay, speed."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from potion.terminal import Json, Quiet, fail

if TYPE_CHECKING:
    from potion.bench.plan import Run
    from potion.bench.results import Results
    from potion.bench.runner import Tally

__all__ = ["app"]

app = typer.Typer(
    help="The paper's benchmark: suites of runs, one JSON each, and the tables and figures made from them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="Start with **potion bench run smoke**: no data, no GPU, minutes. Data sets are looked for in the "
    "folder that the environment variable POTION_DATA names.",
)

SuiteName = Annotated[str, typer.Argument(help="A suite of **potion bench list**, or the path of your own TOML.")]
Suites = Annotated[list[str] | None, typer.Argument(help="Suites by name or path; default: all that have results.")]
Folder = Annotated[Path, typer.Option("--results", help="The folder with the result files.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Only these: methods (xlf,lf), a scenario ('badnet-m500-*') or one run (badnet-m500-f50/xlf-s0)."
    ),
]
Seeds = Annotated[str | None, typer.Option(help="These seeds instead of the suite's, like 0,1,2.")]
RESULTS = Path("results")


@app.command("list")
def list_suites(as_json: Json = False, quiet: Quiet = False) -> None:
    """The suites in the package."""
    from potion.bench.plan import plan
    from potion.bench.suite import load_suite, shipped_suites

    rows = []
    for name in shipped_suites():
        suite = load_suite(name)
        runs = plan(suite)
        rows.append(
            {"suite": name, "title": suite.title, "runs": len(runs), "victims": len({run.victim for run in runs})}
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif not quiet:
        _print_table(["suite", "title", "runs", "victims"], [[str(value) for value in row.values()] for row in rows])


@app.command()
def run(
    suite: SuiteName,
    results: Folder = RESULTS,
    only: Only = None,
    seeds: Seeds = None,
    shard: Annotated[
        str | None, typer.Option(help="Part 2 of 4 as 2/4; whole victims, so that none is trained twice.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Stop cleanly after so long: 25m, 90s, 1h30m.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, cpu, ...; default: the best there is.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images, for sets that stream.")] = 0,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Where to run.")] = "local",
    address: Annotated[str | None, typer.Option(help="A running Ray cluster (ray: default: start one here).")] = None,
    cpus: Annotated[float, typer.Option(help="CPUs a run, for Ray.")] = 1,
    gpus: Annotated[
        float | None, typer.Option(help="GPUs a run, for Ray; a fraction shares one. Default: 1 where there are any.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run what is missing of a suite.

    Victims are trained once and kept; each finished run is one JSON below RESULTS/SUITE. Kill it whenever you like and
    start it again: it goes on, also in the middle of a training. Start it several times on one folder, and the runners
    share the work.

    Exit code: 0 all done, 4 time was up, 1 a run failed, 2 usage.
    """
    from potion.bench.board import Board
    from potion.bench.runner import Deadline

    if engine == "ray" and device is not None:
        fail("--device is for the local engine; with Ray, --gpus says what a run gets")
    runs = _planned(suite, only, seeds, shard)
    limit = None if budget is None else _seconds(budget)
    found = _results(results, runs, _everything(suite, results), quiet=quiet, writable=True)
    deadline = Deadline.after(limit)
    done = sum(found.has(each) for each in runs)
    with Board(runs, done, deadline, quiet=quiet, as_json=as_json) as board:
        try:
            if engine == "ray":
                tally = _on_ray(runs, found, board, deadline, address=address, cpus=cpus, gpus=gpus, workers=workers)
            else:
                tally = _here(runs, found, board, deadline, device=device, workers=workers)
        except (OSError, ValueError, RuntimeError) as error:
            fail(str(error))
        except KeyboardInterrupt:
            fail("stopped; nothing finished is lost: the same command goes on", 130)
    _finish(tally, len(runs), quiet=quiet or as_json)


@app.command()
def status(suites: Suites = None, results: Folder = RESULTS, as_json: Json = False, quiet: Quiet = False) -> None:
    """What is done, what is missing, and which files do not count."""
    rows = []
    problems: dict[str, str] = {}
    for name in _named_or_present(suites, results):
        runs = _everything(name, results)
        found = _results(results, runs, quiet=True)
        problems |= found.problems
        planned, done = Counter(run.method for run in runs), Counter(run.method for run in runs if found.has(run))
        for method, count in planned.items():
            seconds = sum(found.records[run.path]["seconds"] for run in runs if run.method == method and found.has(run))
            rows.append(
                {"suite": name, "method": method, "done": done[method], "planned": count, "seconds": round(seconds, 1)}
            )
    if as_json:
        typer.echo(json.dumps({"rows": rows, "problems": problems}, indent=1))
    elif not quiet:
        _print_table(
            ["suite", "method", "done", "planned", "seconds"], [[str(v) for v in row.values()] for row in rows]
        )
        _name_problems(problems)


@app.command()
def tables(
    suites: Suites = None,
    results: Folder = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder for the Markdown, LaTeX and CSV files.")] = Path("tables"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the paper's tables, ours beside the published values; and one for every other suite that has results.

    Made from the result files alone. Missing cells are shown as missing, with the command that fills them.
    """
    from potion.bench.tables import make, tables_for
    from potion.bench.typeset import as_markdown, write_table
    from potion.files import replacing, writable_folder

    names = _named_or_present(suites, results)
    for name in names:
        _results(results, _everything(name, results), quiet=quiet)
    try:
        folder = writable_folder(out)
        made = [make(spec, results) for spec in tables_for(names, everything=not suites)]
        for table in made:
            write_table(table, folder)
        text = "\n".join(as_markdown(table) for table in made)
        replacing(folder / "tables.md", lambda partial: partial.write_text(text))
    except OSError as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps([table.to_dict() for table in made], indent=1))
    elif not quiet:
        typer.echo(text)
        typer.echo(f"written: {folder}/ (tables.md, and each table as .md, .tex and .csv)")


@app.command()
def figures(
    suites: Suites = None,
    results: Folder = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder for the PNG and SVG files.")] = Path("figures"),
    quiet: Quiet = False,
) -> None:
    """Draw the paper's figures from the result files: curves, times, sensitivity, trade-off; and those without data."""
    from potion.files import writable_folder

    names = _named_or_present(suites, results)
    try:
        folder = writable_folder(out)
        found = [_results(results, _everything(name, results), quiet=quiet) for name in names]
        from potion.bench.figures import draw_all

        written = draw_all(found, folder)
    except OSError as error:
        fail(str(error))
    except ModuleNotFoundError:
        fail("figures need matplotlib: pip install 'potion[bench]'")
    if not quiet:
        typer.echo(f"written: {folder}/ {', '.join(written)} (.png and .svg)")


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A result file.")],
    results: Annotated[Path, typer.Option("--results", help="Where trained models are kept.")] = RESULTS,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ...; default: the best there is.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images, for sets that stream.")] = 0,
    tolerance: Annotated[float, typer.Option(min=0, help="Points by which scores may differ.")] = 0.5,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one result again from its own settings, and say whether it agrees.

    The victim is taken from RESULTS where it is kept, and trained again where it is not. Nothing is written over.
    Exit code: 0 it agrees, 3 it does not, 2 usage.
    """
    from potion.bench.replay import compared
    from potion.bench.results import ResultError

    try:
        verdict = compared(file, results, device=device, workers=workers, tolerance=tolerance)
    except (ResultError, OSError, ValueError, RuntimeError, ModuleNotFoundError) as error:
        fail(f"{file}: {error}")
    if as_json:
        typer.echo(json.dumps(verdict.to_dict(), indent=1))
    elif not quiet:
        _print_table(["", "then", "now", "difference"], verdict.rows())
        typer.echo(verdict.sentence())
    raise typer.Exit(0 if verdict.agrees else 3)


@app.command()
def speed(
    workload: Annotated[
        str | None,
        typer.Option(
            help="embedded, resnet9, wrn28x10, vit-tiny or vit-base; default: resnet9 on a GPU, else embedded."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ...; default: the best there is.")] = None,
    method: Annotated[Literal["xlf", "lf", "ssd"], typer.Option(help="Which importances.")] = "xlf",
    known: Annotated[int, typer.Option(min=1, help="How much of the poison is known.")] = 250,
    images: Annotated[
        int | None, typer.Option(min=1024, help="Take so many training images; default: the workload's own.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Medians are over so many, after a warm-up.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the JSON and the figure.")] = Path("results/speed"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure what healing costs here: seconds a phase, ratios to a plain pass, FLOP/s, memory, and how it grows.

    Everything is taken in one run on an idle machine; what is compared is measured in turns.
    """
    from potion.bench.speed import draw_speed, measured
    from potion.files import replacing, writable_folder, write_json
    from potion.runtime import best_device
    from potion.validation import known_device

    try:
        place = best_device() if device is None else known_device(device)
        folder = writable_folder(out)
        name = workload or ("resnet9" if place.type == "cuda" else "embedded")
        tell = (lambda what: None) if quiet or as_json else (lambda what: typer.echo(f"{what} ...", err=True))
        found = measured(name, place, repeats=repeats, count=known, method=method, tell=tell, images=images)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        fail(str(error))
    file = folder / f"{place.type}-{name}-{method}.json"
    write_json(file, found)
    if importlib.util.find_spec("matplotlib") is not None:
        replacing(file.with_suffix(".png"), lambda partial: draw_speed(partial, found))
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    elif not quiet:
        _print_speed(found)
        typer.echo(f"written: {file}")


def _print_speed(found: dict[str, Any]) -> None:
    rows = [["heal", f"{found['heal_seconds']:.3f} s"]]
    rows += [[f"  {phase}", f"{seconds:.3f} s"] for phase, seconds in found["phases"].items()]
    rows += [[name, f"{ratio:.3f}"] for name, ratio in found["ratios"].items()]
    rows += [[f"images/s, {name}", f"{value:,.0f}"] for name, value in found["images_per_second"].items()]
    if found["steps_per_second"] is not None:
        rows += [["search steps", str(found["steps"])], ["search steps/s", f"{found['steps_per_second']:,.0f}"]]
    if found["peak_in_weights"] is not None:
        rows += [["peak memory over the model, in weights", f"{found['peak_in_weights']:.2f}"]]
    for name, series in found["scaling"].items():
        rows += [
            [f"grows with {name}: exponent", f"{series['exponent']:.2f}"],
            ["  intercept", f"{series['intercept']:.4f} s"],
        ]
    _print_table([f"{found['workload']}, {found['known']} known", found["machine"]["device"]], rows)


def _planned(suite: str, only: list[str] | None, seeds: str | None, shard: str | None) -> list[Run]:
    from potion.bench.plan import plan, selected, sharded
    from potion.bench.schema import SuiteError
    from potion.bench.suite import load_suite

    try:
        patterns = [pattern.strip() for each in only or [] for pattern in each.split(",")]
        runs = selected(plan(load_suite(suite), _numbers(seeds)), patterns)
    except SuiteError as error:
        fail(str(error))
    if shard is None:
        return runs
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        fail(f"--shard {shard}: give a part and the number of parts, like 2/4")
    return sharded(runs, int(match[1]), int(match[2]))


def _results(
    folder: Path, runs: list[Run], others: Sequence[Run] = (), *, quiet: bool, writable: bool = False
) -> Results:
    from potion.bench.results import Results
    from potion.files import writable_folder

    try:
        found = Results.of(writable_folder(folder) if writable else folder, runs, others)
    except OSError as error:
        fail(str(error))
    if not quiet:
        _name_problems(found.problems)
    return found


def _everything(suite: str, results: Path) -> list[Run]:
    """All runs of a suite, and those with other seeds that have results."""
    from potion.bench.plan import planned_or_present
    from potion.bench.schema import SuiteError
    from potion.bench.suite import load_suite

    try:
        return planned_or_present(load_suite(suite), results)
    except SuiteError as error:
        fail(str(error))


def _here(
    runs: list[Run], found: Results, board: object, deadline: object, *, device: str | None, workers: int
) -> Tally:
    from potion.bench.models_folder import work_folder
    from potion.bench.runner import run_here
    from potion.bench.workshop import Workshop
    from potion.validation import known_device

    place = None if device is None else known_device(device)
    workshop = Workshop(work_folder(found.folder) / "models", device=place, workers=workers, watch=board)  # type: ignore[arg-type]
    return run_here(runs, found, workshop, board, deadline)  # type: ignore[arg-type]


def _on_ray(runs: list[Run], found: Results, board: object, deadline: object, **settings: object) -> Tally:
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        fail("--engine ray needs the extra 'bench': pip install 'potion[bench]'")
    from potion.bench.cluster import run_on_ray

    return run_on_ray(runs, found, board, deadline, **settings)  # type: ignore[arg-type]


def _named_or_present(suites: list[str] | None, results: Path) -> list[str]:
    """The suites asked for, or all shipped ones that have a folder with results."""
    from potion.bench.suite import shipped_suites

    if suites:
        return suites
    present = [name for name in shipped_suites() if (results / name).is_dir()]
    if not present:
        fail(
            f"no results of any suite in {results}: run one (potion bench run smoke), or name the folder with --results"
        )
    return present


def _finish(tally: Tally, total: int, *, quiet: bool) -> None:
    if not quiet:
        here = f"{tally.done} run{'s' * (tally.done != 1)} done here"
        typer.echo(f"{here}, {total - tally.left - tally.failed} of {total} in all")
    if tally.failed:
        fail(f"{tally.failed} run{'s' * (tally.failed > 1)} failed; the same command tries again", 1)
    if tally.out_of_time:
        fail(f"time is up, {tally.left} runs are left: the same command goes on", 4)


def _seconds(budget: str) -> float:
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", budget.replace(" ", ""))
    if match is None or not any(match.groups()):
        fail(f"--budget {budget}: give a time like 25m, 90s or 1h30m")
    hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return 3600.0 * hours + 60 * minutes + seconds


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        fail(f"--seeds {text}: give whole numbers like 0,1,2")
    return numbers


def _print_table(titles: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for place, title in enumerate(titles):
        numbers = all(row[place].replace(".", "").isdigit() for row in rows)
        table.add_column(title, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _name_problems(problems: dict[str, str]) -> None:
    for name, why in problems.items():
        typer.echo(f"potion: not counted: {name}: {why}", err=True)
