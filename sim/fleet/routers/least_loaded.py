"""Sends each request to the replica with the fewest prompt tokens of requests that have not ended,
waiting and running; among equals to the one that was sent the fewest tokens so far.
"""

from __future__ import annotations

from ..options import RouterOptions
from .base import Asked, Router

KV_EVENTS = False


class LeastLoaded(Router):
    def choose(self, asked: Asked) -> int:
        return self.loads.least()


def router(replicas: int, page_size: int, options: RouterOptions) -> LeastLoaded:
    return LeastLoaded(replicas)
