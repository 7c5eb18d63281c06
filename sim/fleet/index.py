"""Which replica has which pages, as a router knows it from KV events. Bounded.

A page counts for a replica while it is on its device or its host. Does not know requests or loads,
and never looks into a cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from hicache.core.types import Tier

_TIERS = (Tier.DEVICE, Tier.HOST)


class PrefixIndex:
    """most: pages that are remembered; the least recently used goes first. dropped: how many went
    so. A page is used when it is stored, and when a request looks for it and a replica has it. Of
    the pages of one prefix, the last goes first, since those behind a missing page are no match.
    """

    def __init__(self, replicas: int, most: int) -> None:
        self.dropped = 0
        self._replicas = replicas
        self._most = most
        # a bit for each replica and tier; the least recently used page comes first
        self._places: OrderedDict[bytes, int] = OrderedDict()
        self._device_bits = sum(1 << len(_TIERS) * replica for replica in range(replicas))

    def __len__(self) -> int:
        return len(self._places)

    def stored(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        """Pages came to a tier of a replica, in the order of their prefix."""
        if tier not in _TIERS:
            return
        bit, places = 1 << len(_TIERS) * replica + tier, self._places
        for digest in reversed(digests):
            places[digest] = places.get(digest, 0) | bit
            places.move_to_end(digest)
        while len(places) > self._most:
            places.popitem(last=False)
            self.dropped += 1

    def removed(self, replica: int, tier: Tier, digests: Iterable[bytes]) -> None:
        """Pages left a tier of a replica. Those that were dropped are not known any more."""
        if tier not in _TIERS:
            return
        bit, places = 1 << len(_TIERS) * replica + tier, self._places
        for digest in digests:
            left = places.get(digest, 0) & ~bit
            if left:
                places[digest] = left
            else:
                places.pop(digest, None)

    def leading(self, digests: Sequence[bytes]) -> list[int]:
        """How many of the leading pages each replica has. These pages are used."""
        found = [0] * self._replicas
        having, places = self._device_bits, self._places
        for page, digest in enumerate(digests):
            bits = places.get(digest, 0)
            having &= bits | bits >> 1
            if not having:
                break
            for replica in range(self._replicas):
                if having >> len(_TIERS) * replica & 1:
                    found[replica] = page + 1
        for digest in reversed(digests[: max(found)]):
            places.move_to_end(digest)
        return found
