"""What a run of the tests left out, by reason, for its last lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest


@dataclass(frozen=True, slots=True)
class LeftOut:
    """tests, files: how many for each reason. A file counts once, whatever is in it."""

    tests: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> LeftOut:
        found = cls()
        for report in skipped:
            assert isinstance(report.longrepr, tuple)
            reason = " ".join(report.longrepr[2].removeprefix("Skipped: ").split())
            counts = found.files if isinstance(report, pytest.CollectReport) else found.tests
            counts[reason.removeprefix("hicache: ")] += 1
        return found

    def lines(self) -> list[str]:
        """The reason that left out the most comes first."""
        if not self.tests.total() and not self.files:
            return ["Nothing was left out."]
        reasons = self.tests + self.files
        rows = [
            f"  {_counted(self.tests[reason], self.files[reason])}: {reason}"
            for reason in sorted(+reasons, key=lambda one: (-reasons[one], one))
        ]
        return [f"Left out: {_counted(self.tests.total(), self.files.total())}", *rows]


def _counted(tests: int, files: int) -> str:
    """Both numbers in words, without one that is 0."""
    named = ((tests, "test"), (files, "whole file"))
    return " and ".join(f"{count} {name}{'s' * (count > 1)}" for count, name in named if count)
