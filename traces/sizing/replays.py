"""Replays of named points in processes, round by round, and what came out of each.

A point that a round before it had is not replayed again, whatever its name is now. The draws of all
points have the same seeds, so that two points differ by what they are and not by what was drawn for
them. Does not choose points; see plan and trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ..replaying.options import ReplayOptions
from ..sweeping.grid import Grid, header_of, tasks_of
from ..sweeping.work import How, Measured, labelled, measured, opened_once
from .plan import Named

Document = dict[str, Any]
_UNKNOWN_ERROR = 0.2  # of times that were never judged


def pass_error(found: Document) -> tuple[float, bool]:
    """The error to expect of the time of a pass, and whether it was judged; else it is assumed."""
    stated = (found.get("expected_error") or {}).get("tpot") or {}
    judged = bool(stated.get("runs"))
    return max(0.01, round(stated["median"] if judged else _UNKNOWN_ERROR, 2)), judged


def kept_of(document: Document | None) -> float:
    """About which part of the requests kept the limits, of those that were replayed."""
    if document is None:
        return 0.0
    if "stopped" in document:
        return float(1 - document["stopped"]["missed"] / document["stopped"]["ended"])
    return float(document["slo"]["attained_rate"])


class Replays:
    """base: what all points share. attain: as in sweeping/work. ended: how the last round ended."""

    def __init__(
        self,
        how: How,
        command: str,
        base: ReplayOptions,
        attain: Fraction | None = None,
    ) -> None:
        self.ended = Measured()
        self._how, self._command = how, command
        self._attain = attain
        self._header = header_of(Grid(base), command)
        self._digest: str = self._header["trace"]["sha256"]
        self._done: dict[str, Document] = {}

    @property
    def count(self) -> int:
        """How many replays there were."""
        return len(self._done)

    def run(self, named: Sequence[Named]) -> list[Document | None]:
        """The document of each point; None for one that was not replayed to its end, and for all
        that come after a round that did not end."""
        points = [point for _, point in named]
        attain = self._attain
        end = "" if attain is None else f"-{attain}"
        tasks = [
            replace(
                task,
                key=f"{task.key}{end}",
                label=label,
                command=self._command,
                attain=attain,
            )
            for task, (label, _) in zip(tasks_of(points, {}, self._digest), named, strict=True)
        ]
        missing = {task.key: task for task in tasks if task.key not in self._done}
        if missing and not (self.ended.code or self.ended.error):
            each = len(opened_once(tasks[0].options).jobs)
            # those without host memory take the least time: last, they leave no core idle for long
            first = sorted(missing.values(), key=lambda task: not task.point["host_bytes"])
            last = self.count + len(first)
            label = f"{self._how.label}, replays {self.count + 1} to {last}"
            found = measured(first, replace(self._how, label=label), self._header, each)
            self.ended = found
            self._done |= {document["key"]: document for document in found.points}
        known = [(task.label, self._done.get(task.key)) for task in tasks]
        return [labelled(found, label) if found else None for label, found in known]
