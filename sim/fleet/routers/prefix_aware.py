"""Sends each request to the replica where it costs least: tokens to compute, and tokens held there.

    cost(replica) = overlap_weight x (waiting + prompt tokens that are not cached there) + held

in tokens; see loads for `waiting` and `held`. What is cached where is known from KV events alone.
The whole prompt counts as one that must be computed where nothing is cached. This is the cost of
NVIDIA Dynamo's KV router, overlap_score_weight x prefill_blocks + decode_blocks, with temperature 0
(docs.nvidia.com/dynamo, "Routing Concepts"), in tokens instead of blocks. A page on host counts as
much as one on device. Among equal costs, the replica that was sent the fewest tokens so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.types import Tier

from ..index import PrefixIndex
from ..options import RouterOptions
from .base import Asked, Router

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
