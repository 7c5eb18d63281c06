"""Sends each request to the replica after the one before it, whatever their loads."""

from __future__ import annotations

from ..options import RouterOptions
from .base import Asked, Router

KV_EVENTS = False


class RoundRobin(Router):
    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self._next = 0

    def choose(self, asked: Asked) -> int:
        chosen = self._next
        self._next = (chosen + 1) % self.replicas
        return chosen


def router(replicas: int, page_size: int, options: RouterOptions) -> RoundRobin:
    return RoundRobin(replicas)
