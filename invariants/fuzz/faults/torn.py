"""A copy fails after some of its pages have arrived. The kinds differ in which pages arrive."""

from __future__ import annotations

from collections.abc import Callable

from .base import Fault


class Torn(Fault):
    fine = False
    sites = ("Load", "Backup")

    def __init__(self, there: Callable[[int, int], bool]) -> None:
        self.there = there

    def arrives(self, at: int, count: int) -> bool:
        return self.there(at, count)


KINDS = {
    "torn": Torn(lambda at, count: at < count // 2),
    "torn suffix": Torn(lambda at, count: at >= count // 2),
    "torn half": Torn(lambda at, count: bool((at * 2654435761 >> 7) & 1)),
    "torn last page": Torn(lambda at, count: at < count - 1),
    "torn whole": Torn(lambda at, count: True),
}
