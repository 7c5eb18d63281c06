"""Which pages a forward pass reads and writes, of every component, and what must be on them.

Lives here: the arithmetic from a request's tables and state slots to accesses. Must not live here:
what is done with them (forward on any device; recordings in `traces`), or how content is made
(content).

    positional   reads  tokens max(0, start - window + 1) .. start - 1
                 writes tokens start .. end - 1
    a state      reads  `source`, or what the request's working slot holds
                 writes the working slot, and a copy of it per checkpoint

A page's content follows from the depth in tokens that it is filled to, or that its state stands
for: `depths` beside the pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Prefill, StateSlots
from hicache.core.components.base import Component
from hicache.core.config import Config
from hicache.core.errors import CoreBug
from hicache.core.types import Pages
from hicache.devices.base import Touch

_HALVES = 2


class Access(NamedTuple):
    """Pages of one component that are read ("r") or written ("w"), in order; at least one.

    state: whether the page is a state, which is replaced as a whole with every token.
    """

    component: str
    mode: Literal["r", "w"]
    pages: Pages
    depths: NDArray[np.int64]
    state: bool = False

    def touch(self, layers: tuple[int, int], why: str) -> Touch:
        """What a device is told of it."""
        return Touch(self.component, self.pages, self.mode, layers, why)


class _Table(NamedTuple):
    """A positional component. window: tokens that a token attends to, itself included."""

    name: str
    window: int


class Accesses:
    """Of the requests of one core: its page size and components decide."""

    def __init__(self, config: Config, components: Sequence[Component]) -> None:
        self.page_size = config.page_size
        self._tables = tuple(
            # the only bound that a component has is the one window of the configuration
            _Table(each.name, each.window_tokens)
            for each in components
            if each.positional
        )

    def first(self, prefill: Prefill) -> list[Access]:
        """What a pass touches before it computes: what is cached, and the copy of a state."""
        why = f"prefill of request {prefill.request} at token {prefill.start_token}"
        found = self._whole(prefill.tables, prefill.start_token, why)
        for slots in prefill.states:
            if slots.source >= 0:
                found.append(_state(slots.component, "r", slots.source, prefill.start_token))
                found.append(_state(slots.component, "w", slots.working, prefill.start_token))
            elif prefill.start_token:
                found.append(_state(slots.component, "r", slots.working, prefill.start_token))
        return found

    def last(self, prefill: Prefill) -> list[Access]:
        """What it leaves behind."""
        why = f"prefill of request {prefill.request} to token {prefill.end_token}"
        found = self._written(prefill.tables, prefill.start_token, prefill.end_token, why)
        for slots in prefill.states:
            if prefill.end_token > prefill.start_token:
                found.append(_state(slots.component, "w", slots.working, prefill.end_token))
            for depth, page in slots.checkpoints:
                if not prefill.start_token < depth <= prefill.end_token:
                    raise CoreBug(f"{why}: a checkpoint at {depth}, outside of the pass")
                found.append(_state(slots.component, "w", page, depth))
        return found

    def decoded(
        self, tables: Sequence[Pages], states: Sequence[StateSlots], since: int, held: int, why: str
    ) -> list[Access]:
        """What decode steps read and wrote that took a request from `since` to `held` tokens.

        Of the depths at which a state was left in turns, the last of each half counts: the others
        are overwritten by then, on the same stream.
        """
        found = self._whole(tables, since, why)
        found += self._written(tables, since, held, why)
        for slots in states:
            found.append(_state(slots.component, "r", slots.working, since))
            found.append(_state(slots.component, "w", slots.working, held))
            interval = slots.interval
            newest = held // interval
            for turn in range(max(since // interval, newest - _HALVES) + 1, newest + 1):
                page = slots.checkpoint_slots[turn % _HALVES]
                if page >= 0:
                    found.append(_state(slots.component, "w", page, turn * interval))
        return found

    def held(
        self, tables: Sequence[Pages], states: Sequence[StateSlots], held: int, why: str
    ) -> list[Access]:
        """What a request at `held` tokens relies on, all of it whole."""
        found = self._whole(tables, held, why)
        if held:
            found += [_state(slots.component, "r", slots.working, held) for slots in states]
        return found

    def _whole(self, tables: Sequence[Pages], start: int, why: str) -> list[Access]:
        """Reads of the whole pages that a token at `start` attends to."""
        size, found = self.page_size, []
        last = start // size
        for (name, window), table in zip(self._tables, tables, strict=True):
            first = max(0, start - window + 1) // size
            if first < last:
                found.append(self._access(name, "r", table, (first, last), last * size, why))
        return found

    def _written(self, tables: Sequence[Pages], start: int, end: int, why: str) -> list[Access]:
        if end <= start:
            return []
        span = (start // self.page_size, -(-end // self.page_size))
        return [
            self._access(name, "w", table, span, end, why)
            for (name, _), table in zip(self._tables, tables, strict=True)
        ]

    def _access(
        self,
        name: str,
        mode: Literal["r", "w"],
        table: Pages,
        span: tuple[int, int],
        end: int,
        why: str,
    ) -> Access:
        pages = table[span[0] : span[1]]
        if len(pages) != span[1] - span[0] or (len(pages) and int(pages.min()) < 0):
            raise CoreBug(
                f"{why}: expected pages {span[0]} to {span[1] - 1} of {name}, found "
                f"{pages.tolist()}"
            )
        depths = np.arange(span[0] + 1, span[1] + 1, dtype=np.int64) * self.page_size
        return Access(name, mode, pages, np.minimum(depths, end))


def _state(component: str, mode: Literal["r", "w"], page: int, depth: int) -> Access:
    if page < 0:
        raise CoreBug(f"state of {component} at depth {depth}: expected a slot, found none")
    return Access(component, mode, np.array([page]), np.array([depth]), state=True)
