"""What became of every page, told by the core's notices for routers.

An observer that knows pages by their digests, as a router does: stored on a tier, removed from a
tier. It says what ended the hit of each request, with the meanings of traces/replaying/following,
with which it is compared. Does not follow page numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hicache.core.actions import Admitted, KvRemoved, KvStored, Outcome, Prefill, Refused
from hicache.core.events import Arrived, Event, LoadDone, PrefillDone
from hicache.core.events import BackupDone as Copied
from hicache.core.types import Tier
from hicache.core.view import CoreView


class Why(NamedTuple):
    """What ended a hit. gone_for, gone_ns: None if nothing was evicted, or for nobody."""

    ended_by: str
    gone_ns: int | None = None
    gone_for: int | None = None
    from_host: bool = False


class PageHistory:
    """See the module. ceiling: pages by request that an unbounded cache would hit.

    misses: by request. refused: reasons by request. operations: number of events. view: of the
    core. now_ns: the time.
    """

    def __init__(self, components: Sequence[str], ceiling: dict[int, int]) -> None:
        self.misses: dict[int, Why] = {}
        self.refused: dict[int, Counter[str]] = {}
        self.operations = 0
        self.view: CoreView | None = None
        self._components = tuple(components)
        self._ceiling = ceiling
        self._on: dict[Tier, set[bytes]] = {Tier.DEVICE: set(), Tier.HOST: set()}
        self._ever: set[bytes] = set()
        self._gone: dict[bytes, tuple[int, int, bool]] = {}
        self._digests: dict[int, list[bytes]] = {}
        self._wanted: dict[int, int] = {}
        self._passes: dict[int, int] = {}
        self.now_ns: Callable[[], int] = lambda: 0

    def on_event(self, event: Event, view: CoreView) -> None:
        self.view = view
        self.operations += 1
        if isinstance(event, Arrived):
            self._digests[event.request] = event.key.page_digests()
            self._wanted[event.request] = min(event.match_pages, event.key.pages)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if isinstance(event, PrefillDone):
            cause = self._passes.pop(event.flight)
        else:
            cause = -1 if isinstance(event, LoadDone | Copied) else getattr(event, "request", -1)
        for told in outcomes:
            if isinstance(told, KvStored):
                self._on[told.tier].update(told.digests)
                self._ever.update(told.digests)
            elif isinstance(told, KvRemoved):
                self._on[told.tier].difference_update(told.digests)
                for digest in told.digests:
                    if not any(digest in held for held in self._on.values()):
                        self._gone[digest] = self.now_ns(), cause, told.tier is Tier.HOST
            elif isinstance(told, Prefill):
                self._passes[told.flight] = told.request
            elif isinstance(told, Refused):
                self.refused.setdefault(told.request, Counter())[told.reason] += 1
            elif isinstance(told, Admitted) and told.request not in self.misses:
                self.misses[told.request] = self._why(told)

    def _why(self, told: Admitted) -> Why:
        hit, depths = told.device_pages + told.host_pages, told.depths
        if hit and hit >= self._wanted[told.request]:
            return Why("complete")
        if hit < depths[0]:
            shallow = [
                name
                for name, depth in zip(self._components, depths, strict=True)
                if depth == min(depths)
            ]
            if len(depths) == 1:
                return Why("not_loaded")
            return Why("together" if hit < min(depths) or len(shallow) > 1 else shallow[0])
        if hit >= self._ceiling[told.request]:
            return Why("first_seen")
        digest = self._digests[told.request][hit]
        if digest not in self._ever:
            return Why("not_ready")
        gone_ns, gone_for, from_host = self._gone[digest]
        return Why("evicted", gone_ns, gone_for if gone_for >= 0 else None, from_host)
