"""Computes which pages of each component a forward pass reads and writes, and their content.

Lives here: the arithmetic from a request's tables and state slots to accesses. Does not perform the
accesses (see forward; traces records them) and does not make the content (see content).

    positional   reads  tokens max(0, start - window + 1) .. start - 1
                 writes tokens start .. end - 1
    a state      reads  `source`, or the request's working slot
                 writes the working slot, and a copy of it per checkpoint

The content of a page depends on its depth: the number of tokens up to its last filled token, or up
to the token of its state. `depths` holds one depth per page.
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
    """Pages of one component that are read ("r") or written ("w"), in order; at least one page.

    state: whether the page holds a state, which each token replaces.
    """

    component: str
    mode: Literal["r", "w"]
    pages: Pages
    depths: NDArray[np.int64]
    state: bool = False

    def touch(self, layers: tuple[int, int], why: str) -> Touch:
        """Returns the access as a device takes it."""
        return Touch(self.component, self.pages, self.mode, layers, why)


class _Table(NamedTuple):
    """A positional component. window: number of tokens that a token attends to, including
    itself.
    """

    name: str
    window: int


class Accesses:
    """Computes accesses for one core, from its page size and its components."""

    def __init__(self, config: Config, components: Sequence[Component]) -> None:
        self.page_size = config.page_size
        self._tables = tuple(
            # a component has at most one bound: its window in the configuration
            _Table(each.name, each.window_tokens)
            for each in components
            if each.positional
        )

    def first(self, prefill: Prefill) -> list[Access]:
        """Accesses before the pass computes: reads of cached pages, and the copy of a state."""
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
        """Accesses after the pass has computed: its writes."""
        why = f"prefill of request {prefill.request} to token {prefill.end_token}"
        found = self.moved(prefill.tables, prefill.start_token, prefill.end_token, why)
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
        """Reads and writes of the decode steps from `since` to `held` tokens.

        Decoding stores states in two checkpoint slots by turns. Only the last state of each slot
        counts: later steps on the same stream overwrite the earlier ones.
        """
        found = self._whole(tables, since, why)
        found += self.moved(tables, since, held, why)
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
        """Reads of all full pages and states that a request at `held` tokens depends on."""
        found = self._whole(tables, held, why)
        if held:
            found += [_state(slots.component, "r", slots.working, held) for slots in states]
        return found

    def _whole(self, tables: Sequence[Pages], start: int, why: str) -> list[Access]:
        """Reads of the full pages that a token at `start` attends to."""
        size, found = self.page_size, []
        last = start // size
        for (name, window), table in zip(self._tables, tables, strict=True):
            first = max(0, start - window + 1) // size
            if first < last:
                found.append(self._access(name, "r", table, (first, last), last * size, why))
        return found

    def moved(
        self,
        tables: Sequence[Pages],
        start: int,
        end: int,
        why: str,
        mode: Literal["r", "w"] = "w",
    ) -> list[Access]:
        """Reads or writes of the pages with the tokens from `start` to `end`, the partial ones
        too."""
        if end <= start:
            return []
        span = (start // self.page_size, -(-end // self.page_size))
        return [
            self._access(name, mode, table, span, end, why)
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
        if len(pages) != span[1] - span[0] or np.count_nonzero(pages < 0):
            raise CoreBug(
                f"{why}: expected pages {span[0]} to {span[1] - 1} of {name}, found "
                f"{pages.tolist()}"
            )
        size = self.page_size
        depths = np.arange(size * (span[0] + 1), size * span[1] + 1, size, dtype=np.int64)
        depths[-1] = min(end, size * span[1])  # the last page may be filled in part
        return Access(name, mode, pages, depths)


def _state(component: str, mode: Literal["r", "w"], page: int, depth: int) -> Access:
    if page < 0:
        raise CoreBug(f"state of {component} at depth {depth}: expected a slot, found none")
    return Access(component, mode, np.array([page]), np.array([depth]), state=True)
