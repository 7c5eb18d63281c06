"""SIEVE: a queue in order of insertion, with a hand that passes over pages used since it came by.

A use marks a page. The hand starts at the oldest page and moves towards newer ones, from the newest
to the oldest again; it takes marks away and evicts the first page without one (Zhang, Yang, Yue,
Vigfusson, Rashmi, NSDI 2024).
"""

from __future__ import annotations

from collections.abc import Iterable

SUMMARY = "a hand moves from old to new pages and evicts the first that was not used since"

_NONE = -1


class Sieve:
    """resident: whether each page is marked."""

    def __init__(self, capacity: int) -> None:
        self.resident: dict[int, bool] = {}
        self._capacity = capacity
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}
        self._newest = self._oldest = self._hand = _NONE

    def use(self, pages: Iterable[int]) -> None:
        marked = self.resident
        for page in pages:
            if page in marked:
                marked[page] = True
                continue
            if len(marked) == self._capacity:
                self._evict()
            marked[page] = False
            self._newer[page], self._older[page] = _NONE, self._newest
            if self._newest == _NONE:
                self._oldest = page
            else:
                self._newer[self._newest] = page
            self._newest = page

    def _evict(self) -> None:
        marked, newer = self.resident, self._newer
        page = self._oldest if self._hand == _NONE else self._hand
        while marked[page]:
            marked[page] = False
            page = newer[page]
            if page == _NONE:
                page = self._oldest
        after, before = newer.pop(page), self._older.pop(page)
        if before == _NONE:
            self._oldest = after
        else:
            newer[before] = after
        if after == _NONE:
            self._newest = before
        else:
            self._older[after] = before
        self._hand = after
        del marked[page]


def make(capacity: int) -> Sieve:
    return Sieve(capacity)
