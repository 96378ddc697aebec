"""Run one result file again, from the settings that it carries, and compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from potion.baselines import METHODS
from potion.bench.models_folder import Busy
from potion.bench.plan import Run
from potion.bench.results import read_record
from potion.bench.workshop import Workshop
from potion.validation import known_device

__all__ = ["Verdict", "compared"]

SCORES: Final = ("clean_accuracy", "clean_label_accuracy", "attack_success_rate", "healed", "damage")


@dataclass(frozen=True)
class Verdict:
    """Two records of one run: as it was, and as it came out now."""

    then: dict[str, Any]
    now: dict[str, Any]
    tolerance: float
    models: str

    @property
    def identical(self) -> bool:
        """Whether scores, status, the whole trace and every point of a sweep are the same."""
        keys = (*SCORES, "status", "trace", "victim", "reference", "curve")
        points = [
            [{**point, "search_seconds": 0} for point in each.get("points", [])] for each in (self.then, self.now)
        ]
        return all(self.then.get(key) == self.now.get(key) for key in keys) and points[0] == points[1]

    @property
    def agrees(self) -> bool:
        """Whether the status is the same, and every score within the tolerance."""
        close = all(abs(self.then[key] - self.now[key]) <= self.tolerance for key in SCORES)
        return close and bool(self.then["status"] == self.now["status"])

    def rows(self) -> list[list[str]]:
        """Score by score."""
        pairs = [(key, self.then[key], self.now[key]) for key in SCORES]
        numbers = [[key, f"{then:.3f}", f"{now:.3f}", f"{now - then:+.3f}"] for key, then, now in pairs]
        return [*numbers, ["status", str(self.then["status"]), str(self.now["status"]), ""]]

    def sentence(self) -> str:
        """The verdict, and what is different about the two runs where that may matter."""
        if self.identical:
            return f"agrees: the same scores and the same search, number for number; {self.models}"
        places = [f"{name}: {one} then, {two} now" for name, one, two in self._circumstances() if one != two]
        reasons = f" ({'; '.join(places)})" if places else ""
        if self.agrees:
            return f"agrees within {self.tolerance:g} points{reasons}; {self.models}"
        return f"does not agree within {self.tolerance:g} points{reasons}; {self.models}"

    def to_dict(self) -> dict[str, Any]:
        """The verdict, ready for JSON."""
        scores = {key: {"then": self.then[key], "now": self.now[key]} for key in (*SCORES, "status")}
        return {"agrees": self.agrees, "identical": self.identical, "sentence": self.sentence(), "scores": scores}

    def _circumstances(self) -> list[tuple[str, Any, Any]]:
        then, now = self.then["provenance"], self.now["provenance"]
        found = [(name, then.get(name), now.get(name)) for name in ("device", "commit", "threads")]
        versions = then.get("versions", {}), now["versions"]
        found += [("data", then.get("data", now["data"]), now["data"])]
        return found + [(name, versions[0].get(name), versions[1][name]) for name in versions[1]]


def compared(file: Path, results: Path, *, device: str | None, workers: int, tolerance: float) -> Verdict:
    """Perform the run of a result file again. What the method itself trains is trained anew, also where it is kept."""
    then = read_record(file)
    run = Run.from_dict(then["run"], file.name)
    if run.method not in METHODS:
        raise ValueError(f"there is no method {run.method!r} here; known are {', '.join(METHODS)}")
    place = None if device is None else known_device(device)
    with TemporaryDirectory(prefix="potion-replay-") as scratch:
        folder = Path(scratch) if run.method == "retrain" else results / ".work" / "models"
        before = set(folder.glob("*.safetensors"))
        try:
            now = Workshop(folder, device=place, workers=workers).perform(run)
        except Busy:
            raise ValueError("another runner is training its victim just now; try again when that is done") from None
        fresh = len(set(folder.glob("*.safetensors")) - before)
    return Verdict(
        then, now, tolerance, f"models trained for it now: {fresh}, taken from {results}: {2 - min(2, fresh)}"
    )
