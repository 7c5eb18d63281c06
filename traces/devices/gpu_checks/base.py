"""What every GPU check is: a summary, and a run that ends in an outcome. Imports no torch.

An entry holds `SUMMARY` and `run(settings) -> Outcome`. Must not live here: what is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """pages: round trips of the byte check. repeats: of each timing, of which the median counts.

    seed: of every random choice of pages.
    """

    pages: int = 100_000
    repeats: int = 7
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. least: what it must reach, None where it is only told."""

    name: str
    value: float
    unit: str = ""
    least: float | None = None

    @property
    def reached(self) -> bool:
        return self.least is None or self.value >= self.least


@dataclass(frozen=True, slots=True)
class Outcome:
    """faults: what is wrong, one line each. A check passes without faults, all figures reached."""

    figures: list[Figure] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.faults and all(figure.reached for figure in self.figures)

    def as_document(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "figures": [
                {
                    "name": figure.name,
                    "value": figure.value,
                    "unit": figure.unit,
                    "least": figure.least,
                    "reached": figure.reached,
                }
                for figure in self.figures
            ],
            "faults": self.faults,
        }
