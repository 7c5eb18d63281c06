"""The replays of a study: named points in processes, round by round, and what came out of each.

A point that a round before it had is not replayed again, whatever its name is now. Does not choose
points; see plan and study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from hicache.version import VERSION

from ..outside import entries
from ..replaying.options import ReplayOptions
from ..sweeping.grid import Point, tasks_of
from ..sweeping.identity import canonical, decisions, trace_digest
from ..sweeping.running import How, Measured, labelled, measured
from ..sweeping.work import PointWork, opened_once
from .plan import Named

Document = dict[str, Any]


class Replays:
    """base: what all points share. scaled: the point for the trace that is replayed, which may be a
    part. unscaled: its document, as the whole trace has it. attain: as in sweeping/work. ended: how
    the last round ended."""

    def __init__(
        self,
        how: How,
        command: str,
        base: ReplayOptions,
        scaled: Callable[[Point], Point],
        unscaled: Callable[[Point, Document], Document],
        attain: Fraction | None = None,
    ) -> None:
        self.ended = Measured(0, None, ())
        self._how, self._command, self._base = how, command, base
        self._scaled, self._unscaled, self._attain = scaled, unscaled, attain
        self._digest = trace_digest(base.trace)
        self._done: dict[str, Document] = {}

    @property
    def count(self) -> int:
        """How many replays there were."""
        return len(self._done)

    def run(self, named: Sequence[Named]) -> list[Document | None]:
        """The document of each point; None for one that was not replayed to its end, and for all
        that come after a round that did not end."""
        points = [self._scaled(point) for _, point in named]
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
            work = partial(PointWork, self._digest, decisions(), entries.given())
            each = len(opened_once(tasks[0].options).jobs)
            # those without host memory take the least time: last, they leave no core idle for long
            first = sorted(missing.values(), key=lambda task: not task.point["host_bytes"])
            found = measured(work, first, self._how, self._header(), each)
            self.ended = found
            self._done |= {document["key"]: document for document in found.points}
        return [
            self._named(task.label, point, self._done.get(task.key))
            for task, point in zip(tasks, points, strict=True)
        ]

    def _named(self, label: str, point: Point, found: Document | None) -> Document | None:
        if found is None:
            return None
        found = labelled(found, label)
        return found if "stopped" in found else self._unscaled(point, found)

    def _header(self) -> Mapping[str, object]:
        return {
            "hicache_version": VERSION,
            "decisions": decisions(),
            "command": self._command,
            "trace": {"path": self._base.trace, "sha256": self._digest},
            "base": canonical(self._base),
            "grid": {},
        }
