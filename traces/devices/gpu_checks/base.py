"""The interface of GPU checks. Imports no torch.

A check is one file with `SUMMARY` and `run(settings) -> Outcome`. Does not contain any check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """pages: round trips of the byte check. repeats: of each timing; the median counts.

    seed: of every random choice of pages.
    """

    pages: int = 100_000
    repeats: int = 7
    seed: int = 0


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """faults: one line for each error. A check passes with no faults and all targets reached."""

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
