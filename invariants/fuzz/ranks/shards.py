"""Contents of several ranks: prefix numbers are shared, pages are separate.

Each rank's copies and passes end with that rank's own result, whatever the ranks agreed on. An
agreement that ignores a rank therefore leads to wrong content. Does not define content (see
content) or times (see ranks).
"""

from __future__ import annotations

from hicache.core.actions import Outcome, Prefill
from hicache.core.config import Config
from hicache.core.types import Tier
from hicache.core.view import CoreView

from ..content import Arrives, Content
from .ranks import Ranks


class Shards(Content):
    """The contents of each rank's pages."""

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
        """Ends the copy on each rank with that rank's own result."""
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
