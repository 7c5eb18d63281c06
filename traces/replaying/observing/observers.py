"""The observers that count for all replicas together, and the figures of each pool that follow."""

from __future__ import annotations

from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.books.garbage import garbage_report
from invariants.books.kinds import KNOWN

from ..account import Tokens
from ..following.prefetches import Prefetches
from ..lookups import Lookups
from ..run import ComponentUse
from ..settings import Settings
from ..tally import Tally


class Observers:
    """See the module."""

    def __init__(self, settings: Settings, ceiling: Tokens) -> None:
        self.tally = Tally()
        self.lookups = Lookups(settings.core.components, -(-ceiling // settings.core.page_size))
        self.prefetches = Prefetches()
        self.all: list[Observer] = [self.tally]
        if settings.storage is not None:
            self.all.append(self.prefetches)
        if len(settings.core.components) > 1:  # for full alone, the account is enough
            self.all.append(self.lookups)

    def components(self, settings: Settings, view: CoreView | None) -> tuple[ComponentUse, ...]:
        """The use of each component. view: of the core at the end, None after an interrupt."""
        known = {*settings.core.components} <= {*KNOWN}
        garbage = garbage_report(view) if view and known else {}
        uses, tally, core = [], self.tally, settings.core
        for place, name in enumerate(core.components):
            tiers = [garbage.get(f"{tier} {name}", {}) for tier in ("device", "host")]
            uses.append(
                ComponentUse(
                    name,
                    settings.page_bytes[place],
                    (core.device_pages[place], core.host_pages[place]),
                    tally.loaded[name],
                    tally.backed_up[name],
                    (tally.evicted[Tier.DEVICE, name], tally.evicted[Tier.HOST, name]),
                    self.lookups.peak_pages[place],
                    self.lookups.evicted_along[place],
                    (tiers[0]["cached"], tiers[1]["cached"]) if garbage else None,
                    (tiers[0]["garbage"], tiers[1]["garbage"]) if garbage else None,
                )
            )
        return tuple(uses)

    def refused(self, backbone: str) -> dict[str, int]:
        return {
            reason if component == backbone else f"{reason} of {component}": count
            for (reason, component), count in self.tally.refused.items()
        }
