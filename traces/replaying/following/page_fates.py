"""Where each page of the trace is and was, by component, and how it left its last tier.

Pages are followed by their ids in the trace (`Paged.chain`). A page number of a tier stands for the
id that was last written there, which is right for every page that the tree has. A state has the id
of the page that it ends at. Does not read events (see history) or judge a request (see caps).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Evicted
from hicache.core.radix.node import Node
from hicache.core.types import BACKBONE, Pages, Tier
from hicache.core.view import CoreView

NEVER_NS = -1
NOBODY = -1
Bits = NDArray[np.uint8]


def bit(tier: Tier) -> int:
    return 1 << tier


class _Component:
    """By page id: the tiers that have it, and that ever had it, as bits; and when, for whom, from
    which tier and at which event it left the last of device and host."""

    def __init__(self) -> None:
        self.now: Bits = np.zeros(1 << 12, dtype=np.uint8)
        self.ever: Bits = np.zeros(1 << 12, dtype=np.uint8)
        self.failed = np.zeros(1 << 12, dtype=np.bool_)  # a store of it failed
        self.gone_ns = np.full(1 << 12, NEVER_NS, dtype=np.int64)
        self.gone_for = np.full(1 << 12, NOBODY, dtype=np.int64)
        self.gone_from_host = np.zeros(1 << 12, dtype=np.bool_)
        self.gone_at = np.zeros(1 << 12, dtype=np.uint8)
        self.ids: dict[Tier, Pages] = {}  # by page number of a tier

    def grow(self, ids: int) -> None:
        more = ids - len(self.now)
        for name in ("now", "ever", "failed", "gone_ns", "gone_for", "gone_from_host", "gone_at"):
            old = getattr(self, name)
            empty = -1 if name in ("gone_ns", "gone_for") else 0
            setattr(self, name, np.concatenate((old, np.full(more, empty, dtype=old.dtype))))


class PageFates:
    """See the module. events: names of events, in the order of the numbers in `gone_at`."""

    def __init__(self, components: Sequence[str]) -> None:
        self._names = tuple(components)
        self._of = [_Component() for _ in components]
        self.events: list[str] = [""]

    def begin(self, view: CoreView) -> None:
        """Makes room for the page numbers of every pool; before the first outcome."""
        if not self._of[BACKBONE].ids:
            for index, one in enumerate(self._of):
                for tier in (Tier.DEVICE, Tier.HOST):
                    one.ids[tier] = np.full(view.pool(tier, index).capacity, -1, dtype=np.int64)

    def know(self, chain: Pages) -> None:
        """Makes room for these ids."""
        most = int(chain.max()) + 1 if len(chain) else 0
        known = len(self._of[BACKBONE].now)
        if most > known:
            for one in self._of:
                one.grow(max(most, 2 * known))

    def index(self, component: str) -> int:
        return self._names.index(component)

    def ids_of(self, tier: Tier, index: int, pages: Pages) -> Pages:
        """The ids of these page numbers; -1 for an answer that the trace does not identify."""
        found: Pages = self._of[index].ids[tier][pages]
        return found

    def write(self, tier: Tier, index: int, pages: Pages, ids: Pages) -> None:
        """These pages hold the content of these ids from now on."""
        self._of[index].ids[tier][pages] = ids

    def arrive(self, tier: Tier, index: int, ids: Pages) -> None:
        """The tier has these ids from now on."""
        one, ids = self._of[index], ids[ids >= 0]
        one.now[ids] |= bit(tier)
        one.ever[ids] |= bit(tier)

    def fail(self, index: int, ids: Pages) -> None:
        """A store of these ids failed."""
        self._of[index].failed[ids[ids >= 0]] = True

    def cache(self, nodes: Iterable[Node]) -> None:
        """These nodes are new or changed: what they have on device is there."""
        for node in nodes:
            pages = node.pages[Tier.DEVICE][BACKBONE]
            if pages is None:
                continue
            ids = self.ids_of(Tier.DEVICE, BACKBONE, pages)
            self.arrive(Tier.DEVICE, BACKBONE, ids)
            for index in range(1, len(self._of)):
                others = node.pages[Tier.DEVICE][index]
                if others is not None:
                    own = ids if len(others) == len(ids) else ids[-1:]
                    self.write(Tier.DEVICE, index, others, own)
                    self.arrive(Tier.DEVICE, index, own)

    def evict(self, evicted: Evicted, now_ns: int, request: int, event: str) -> None:
        """request, event: for whom and at which event; NOBODY at the end of a copy."""
        index = self.index(evicted.component)
        one, ids = self._of[index], self.ids_of(evicted.tier, index, evicted.pages)
        ids = ids[ids >= 0]
        one.now[ids] &= 0xFF ^ bit(evicted.tier)
        if evicted.tier == Tier.DEVICE:
            if evicted.demoted:
                return
        else:
            ids = ids[(one.now[ids] & bit(Tier.DEVICE)) == 0]
        self._leave(one, ids, now_ns, request, event, evicted.tier == Tier.HOST)

    def flush(self, now_ns: int, event: str) -> None:
        """Device and host have nothing from now on."""
        both = bit(Tier.DEVICE) | bit(Tier.HOST)
        for one in self._of:
            ids = np.flatnonzero(one.now & both)
            on_host = (one.now[ids] & bit(Tier.HOST)) != 0
            one.now[ids] &= 0xFF ^ both
            self._leave(one, ids, now_ns, NOBODY, event, on_host)

    def _leave(
        self,
        one: _Component,
        ids: Pages,
        now_ns: int,
        request: int,
        event: str,
        from_host: bool | NDArray[np.bool_],
    ) -> None:
        if event not in self.events:
            self.events.append(event)
        one.gone_ns[ids] = now_ns
        one.gone_for[ids] = request
        one.gone_from_host[ids] = from_host
        one.gone_at[ids] = self.events.index(event)

    def has(self, tier: Tier, index: int, page: int) -> bool:
        return bool(self._of[index].now[page] & bit(tier))

    def had(self, tier: Tier, index: int, page: int) -> bool:
        return bool(self._of[index].ever[page] & bit(tier))

    def store_failed(self, index: int, page: int) -> bool:
        return bool(self._of[index].failed[page])

    def gone(self, index: int, page: int) -> tuple[int, int, bool, str]:
        """(when, for which request, whether from host, at which event) it left its last tier."""
        one = self._of[index]
        return (
            int(one.gone_ns[page]),
            int(one.gone_for[page]),
            bool(one.gone_from_host[page]),
            self.events[one.gone_at[page]],
        )
