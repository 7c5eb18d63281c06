"""A small core under all checks, whose replies the tests give."""

from __future__ import annotations

from typing import Any

from hicache.core.core import Core
from invariants.books.book import Book
from invariants.watch import Watch
from tests.configs import configured


class Watched:
    """A core of one-token pages under all checks."""

    def __init__(self, host_pages: int = 8, device_pages: int = 8, **settings: Any) -> None:
        self.core = Core(configured(1, (device_pages,), (host_pages,), **settings))
        self.watch = Watch()

    def __call__(self, event: Any) -> list[Any]:
        self.watch.on_event(event, self.core.view)
        outcomes = self.core.handle(event)
        self.watch.on_outcomes(event, outcomes, self.core.view)
        return outcomes

    @property
    def book(self) -> Book:
        assert self.watch.book is not None
        return self.watch.book


def flight_of(outcomes: list[Any], kind: type) -> int:
    return next(int(item.flight) for item in outcomes if type(item) is kind)
