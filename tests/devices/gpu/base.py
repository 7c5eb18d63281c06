"""What a check that needs a GPU returns: figures with their targets, and faults."""

from __future__ import annotations

from dataclasses import dataclass, field

REPEATS = 7  # of each timing; the median counts


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. least: its target, None if it is only reported."""

    name: str
    value: float
    unit: str = ""
    least: float | None = None

    @property
    def reached(self) -> bool:
        return self.least is None or self.value >= self.least

    def __str__(self) -> str:
        target = "" if self.least is None else f", at least {self.least:g}"
        return f"{self.name}: {self.value:.10g} {self.unit}".rstrip() + target


@dataclass(frozen=True, slots=True)
class Outcome:
    """faults: one line for each error, and the names of targets that were not reached."""

    figures: list[Figure] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [*self.faults, *(f"not reached: {one}" for one in self.figures if not one.reached)]
