"""Sends each request to the replica where it costs least: tokens to compute, and tokens held there.

    cost(replica) = overlap_weight x (waiting + prompt tokens that are not cached there) + held

in tokens; see `Loads` for `waiting` and `held`. What is cached where is known from KV events alone.
The whole prompt counts as one that must be computed where nothing is cached. This is the cost of
NVIDIA Dynamo's KV router, overlap_score_weight x prefill_blocks + decode_blocks, with temperature 0
(docs.nvidia.com/dynamo, "Routing Concepts"), in tokens instead of blocks. A page on host counts as
much as one on device. Among equal costs, the replica that was sent the fewest tokens so far.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from hicache.core.types import Tier

from ..options import RouterOptions
from .base import Asked, Router

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


KV_EVENTS = True


class PrefixAware(Router):
    def __init__(self, replicas: int, page_size: int, options: RouterOptions) -> None:
        super().__init__(replicas)
        self.index = PrefixIndex(replicas, options.index_pages)
        self._page_size = page_size
        self._weight = options.overlap_weight
        self._compute = [0] * replicas  # of the last request, by replica

    def choose(self, asked: Asked) -> int:
        size, loads, weight = self._page_size, self.loads, self._weight
        leading = self.index.leading(asked.digests())
        self._compute = [max(0, asked.input_tokens - pages * size) for pages in leading]

        def cost(replica: int) -> tuple[int, int, int]:
            prefill = loads.waiting[replica] + self._compute[replica]
            total = weight.numerator * prefill + weight.denominator * loads.held[replica]
            return total, loads.sent[replica], replica

        return min(range(self.replicas), key=cost)

    def sent(self, asked: Asked, replica: int) -> None:
        self.loads.send(asked.index, replica, asked.input_tokens, self._compute[replica])

    def stored(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        self.index.stored(replica, tier, digests)

    def removed(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        self.index.removed(replica, tier, digests)


def router(replicas: int, page_size: int, options: RouterOptions) -> PrefixAware:
    return PrefixAware(replicas, page_size, options)
