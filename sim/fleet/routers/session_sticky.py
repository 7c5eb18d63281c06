"""Sends all requests of a session to the replica of its first one, which is the least loaded then.

A request without a session goes to the least loaded replica. The sessions that were used longest
ago are forgotten when there are too many.
"""

from __future__ import annotations

from ..options import RouterOptions
from .base import Asked, Router

KV_EVENTS = False
_MOST_SESSIONS = 1 << 20


class SessionSticky(Router):
    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self._places: dict[int, int] = {}

    def choose(self, asked: Asked) -> int:
        if asked.session < 0:
            return self.loads.least()
        found = self._places.pop(asked.session, -1)
        chosen = found if found >= 0 else self.loads.least()
        self._places[asked.session] = chosen
        if len(self._places) > _MOST_SESSIONS:
            del self._places[next(iter(self._places))]
        return chosen


def router(replicas: int, page_size: int, options: RouterOptions) -> SessionSticky:
    return SessionSticky(replicas)
