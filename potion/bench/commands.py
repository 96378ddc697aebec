"""``potion bench``: list, run, status; with tables, figures, replay and speed from the modules beside it."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from potion.bench.options import (
    RESULTS,
    Folder,
    Suites,
    everything,
    name_problems,
    named_or_present,
    planned,
    print_table,
    results_of,
)
from potion.bench.publish import figures, replay, tables
from potion.bench.speed_command import speed
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
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Only these: methods (xlf,lf), a scenario ('badnet-m500-*') or one run (badnet-m500-f50/xlf-s0)."
    ),
]
Seeds = Annotated[str | None, typer.Option(help="These seeds instead of the suite's, like 0,1,2.")]


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
        print_table(["suite", "title", "runs", "victims"], [[str(value) for value in row.values()] for row in rows])


@app.command()
def run(
    suite: SuiteName,
    results: Folder = RESULTS,
    only: Only = None,
    seeds: Seeds = None,
    shard: Annotated[
        str | None, typer.Option(help="Part 2 of 4 as 2/4; whole victims, so that none is trained twice.")
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="First take over what other suites in RESULTS have of the very same runs, with their seconds.",
        ),
    ] = False,
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
    runs = planned(suite, only, seeds, shard)
    limit = None if budget is None else _seconds(budget)
    found = results_of(results, runs, everything(suite, results), quiet=quiet, writable=True)
    deadline = Deadline.after(limit)
    if reuse and (taken := found.reuse(runs)) and not (quiet or as_json):
        typer.echo(f"{taken} run{'s' * (taken != 1)} taken over from other suites")
    done = sum(found.has(each) for each in runs)
    with Board(runs, done, deadline, quiet=quiet, as_json=as_json) as board:
        try:
            if engine == "ray":
                tally = _on_ray(runs, found, board, deadline, address=address, cpus=cpus, gpus=gpus, workers=workers)
            else:
                tally = _here(runs, found, board, deadline, device=device, workers=workers)
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            fail(str(error))
        except KeyboardInterrupt:
            fail("stopped; nothing finished is lost: the same command goes on", 130)
    _finish(tally, len(runs), quiet=quiet or as_json)


@app.command()
def status(suites: Suites = None, results: Folder = RESULTS, as_json: Json = False, quiet: Quiet = False) -> None:
    """What is done, what is missing, and which files do not count."""
    rows = []
    problems: dict[str, str] = {}
    for name in named_or_present(suites, results):
        runs = everything(name, results)
        found = results_of(results, runs, quiet=True)
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
        print_table(["suite", "method", "done", "planned", "seconds"], [[str(v) for v in row.values()] for row in rows])
        name_problems(problems)


for command in (tables, figures, replay, speed):
    app.command()(command)


def _here(
    runs: list[Run], found: Results, board: object, deadline: object, *, device: str | None, workers: int
) -> Tally:
    from potion.bench.models_folder import work_folder
    from potion.bench.runner import run_here
    from potion.bench.workshop import Workshop
    from potion.validation import known_device

    place = None if device is None else known_device(device)
    models = work_folder(found.folder) / "models"
    workshop = Workshop(models, device=place, workers=workers, watch=board, recorded=found.anywhere)  # type: ignore[arg-type]
    return run_here(runs, found, workshop, board, deadline)  # type: ignore[arg-type]


def _on_ray(runs: list[Run], found: Results, board: object, deadline: object, **settings: object) -> Tally:
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        fail("--engine ray needs the extra 'bench': pip install 'potion[bench]'")
    from potion.bench.cluster import run_on_ray

    return run_on_ray(runs, found, board, deadline, **settings)  # type: ignore[arg-type]


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
