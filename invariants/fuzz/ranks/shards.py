"""Contents of several ranks: the names of prefixes are shared, the pages are not.

Each rank's copies and passes end as they went there, whatever the ranks agreed on: what failed on
one rank alone left nothing there, so a verdict that forgets a rank shows as wrong content. Must not
live here: what content is (content), or when anything ends (ranks).
"""

from __future__ import annotations

from hicache.core.actions import Outcome, Prefill
from hicache.core.config import Config
from hicache.core.types import Tier
from hicache.core.view import CoreView

from ..content import Arrives, Content
from .ranks import Ranks


class Shards(Content):
    """What each rank's pages hold: the names of prefixes are shared, the pages are not."""

    def __init__(self, config: Config, ranks: Ranks, pairs: bool = False) -> None:
        super().__init__(config, pairs)
        self.ranks = ranks
        self.others = [Content(config, pairs) for _ in range(ranks.size - 1)]
        for other in self.others:
            other.ids, other.made, other.spelled = self.ids, self.made, self.spelled

    def see(self, item: Outcome) -> None:
        super().see(item)
        for other in self.others:
            other.see(item)

    def end_copy(
        self,
        flight: int,
        tier: Tier,
        ok: bool,
        arrives: Arrives = lambda at, count: False,
    ) -> None:
        """On each rank as it went there, whatever the ranks agreed on."""
        for rank, fate in enumerate(self.ranks.fates[flight]):
            if rank:
                self.others[rank - 1].end_copy(flight, tier, fate.fine, fate.arrives)
            else:
                super().end_copy(flight, tier, fate.fine, fate.arrives)

    def end_pass(self, action: Prefill, ids: list[int] | None) -> None:
        for rank, local in enumerate(self.ranks.locals):
            found = ids if local.fine(action) else None
            if rank:
                self.others[rank - 1].end_pass(action, found)
            else:
                super().end_pass(action, found)

    def decode(self, request: int, ids: list[int], start: int, end: int) -> None:
        super().decode(request, ids, start, end)
        for other in self.others:
            other.decode(request, ids, start, end)

    def audit(self, view: CoreView) -> None:
        super().audit(view)
        for other in self.others:
            other.audit(view)
