"""Checks of a call to a device with real bytes, made before any work is put on a stream.

It checks pages, layers and seeds, and chooses the seeds of the model's own writes. It does not use
streams; see `_streamed`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages
from hicache.memory.layouts import Words
from hicache.memory.table import PoolTable

from .base import Area, Content, CopyJob, Direction, Touch


class Issue:
    """The checks for one device. content: seeds of the model's writes; None: every page of every
    write gets a new seed."""

    def __init__(self, table: PoolTable[Any], content: Content | None) -> None:
        self._table = table
        self._content = content or self._fresh
        self._written = 0
        # the last pages by direction and component: the layer groups of a load have the same arrays
        self._checked: dict[tuple[Direction, str], tuple[Pages, Pages]] = {}

    def check_area(self, area: Area) -> None:
        """Raises CallerError for pages or layers that do not exist."""
        self._table.check_pages(area.tier, area.component, area.pages)
        self._check_layers(*area.layers)

    def _check_layers(self, first: int, last: int) -> None:
        most = self._table.model.layers
        if not 0 <= first <= last <= most:
            raise CallerError(
                f"layers: expected a range within 0 to {most}, found {first} to {last}"
            )

    def check_copy(self, job: CopyJob) -> None:
        """Raises CallerError unless there are as many target pages as source pages, all of them
        exist, and no page is a target twice.

        The order of the copies of one job is not defined, so of two copies to one page either
        could be the last. Arrays of pages are never changed, so they are looked at once.
        """
        place = job.direction, job.component
        source, target = self._checked.get(place, (None, None))
        if source is job.source and target is job.target:
            self._check_layers(*job.layers)
            return
        if len(job.source) != len(job.target):
            raise CallerError(
                f"copy for {job.why}: expected as many targets as sources, "
                f"found {len(job.source)} and {len(job.target)}"
            )
        for area in (job.near, job.far):
            self.check_area(area)
        targets = np.sort(job.target)
        twice = np.flatnonzero(targets[1:] == targets[:-1])
        if len(twice):
            raise CallerError(
                f"copy for {job.why}: expected every target page once, found page "
                f"{targets[twice[0]]} of {job.component} twice; leave one of the two copies out"
            )
        self._checked[place] = job.source, job.target

    def seeds(self, touch: Touch) -> Words:
        """The seeds of what the model writes, uint64, one per page. Raises CallerError if the
        content gives another number of seeds."""
        wanted = len(touch.pages)
        seeds = np.array(self._content(touch.component, touch.pages), dtype=np.uint64)
        if len(seeds) != wanted:
            raise CallerError(f"touch for {touch.why}: expected {wanted} seeds, found {len(seeds)}")
        return seeds

    def _fresh(self, component: str, pages: Pages) -> Words:
        first = self._written
        self._written += len(pages)
        return np.arange(first, self._written, dtype=np.uint64)


def check_hold(time_ns: int) -> None:
    if time_ns < 0:
        raise CallerError(f"hold: expected 0 ns or more, found {time_ns}")
