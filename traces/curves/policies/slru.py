"""Segmented LRU: pages that were used again are protected from pages that were used once.

A new page is on probation. A use of a page on probation protects it. The protected segment has four
fifths of the cache; what it pushes out, its least recent page, is on probation again, as the most
recent. Victims are the least recent on probation (Karedla, Love, Wherry, 1994).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

SUMMARY = "pages used again are protected, in four fifths of the cache, from those used once"


class Slru:
    """resident: whether each page is protected."""

    def __init__(self, capacity: int) -> None:
        self.resident: dict[int, bool] = {}
        self._capacity = capacity
        self._room = capacity * 4 // 5
        self._probation: OrderedDict[int, None] = OrderedDict()
        self._protected: OrderedDict[int, None] = OrderedDict()

    def use(self, pages: Iterable[int]) -> None:
        protected_by, probation, protected = self.resident, self._probation, self._protected
        for page in pages:
            state = protected_by.get(page)
            if state:
                protected.move_to_end(page)
            elif state is None:
                if len(protected_by) == self._capacity:
                    segment = probation or protected
                    victim, _ = segment.popitem(last=False)
                    del protected_by[victim]
                protected_by[page] = False
                probation[page] = None
            elif not self._room:
                probation.move_to_end(page)
            else:
                del probation[page]
                protected[page] = None
                protected_by[page] = True
                if len(protected) > self._room:
                    demoted, _ = protected.popitem(last=False)
                    probation[demoted] = None
                    protected_by[demoted] = False


def make(capacity: int) -> Slru:
    return Slru(capacity)
