"""The antidote's settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from potion.antidote.localise import Search

__all__ = ["Antidote"]


@dataclass(frozen=True, kw_only=True)
class Antidote:
    """Settings, the same for every attack: how long to teach, and how much of it is medicine.

    ``epochs`` are passes over what is taught in each of the ``rounds`` of immunising, ``quarantine_epochs`` in the lesson
    that tells whether there is a trigger, and in each of the ``quarantines``; ``transplants`` is the share of images that
    get the trigger. Poison with its true label is repeated until it is a share of ``corrected``, eight times at most.
    ``held_out`` is the part of the trusted samples which are kept for judging. The trigger is sought in up to ``sources``
    known samples, and in ``more`` of the others where fewer are known; masks are tried on ``pool`` images. With ``carriers``
    mixtures of images have a say in who is poison (:mod:`~potion.antidote.carriers`), and only what is clearly poison is
    taught as such. With ``kin`` there is a second look where nothing speaks for a trigger (:mod:`~potion.antidote.kin`).
    """

    sources: int = 16
    more: int = 8
    pool: int = 1024
    held_out: float = 0.1
    transplants: float = 0.2
    corrected: float = 0.02
    quarantines: int = 2
    quarantine_epochs: float = 1.5
    epochs: float = 4.0
    rounds: int = 2
    lr: float = 0.01
    carriers: bool = True
    kin: bool = True
    search: Search = field(default_factory=Search)

    def __post_init__(self) -> None:
        for name in ("sources", "pool", "quarantines", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.more < 0:
            raise ValueError(f"more must be at least 0, got {self.more}")
        for name in ("quarantine_epochs", "epochs", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("held_out", "transplants", "corrected"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be a share between 0 and 1, got {getattr(self, name)}")
