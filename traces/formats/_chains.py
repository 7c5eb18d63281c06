"""Numbers for chained ids: equal numbers mean equal ids after equal prefixes.

Lives here: the table that a format fills while it reads. Most files number their ids 0, 1, 2, ...
in the order of first use, and use each after one prefix only. Such a file needs a few bytes an id.
An id that does not count on is looked up in a dictionary, at about 120 bytes an id; one that comes
after several prefixes needs a second one. The table can go when the file was read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

MOST = (1 << 31) - 1  # numbers are stored in 32 bits
_ELSEWHERE = -(1 << 31)
_ID_BITS = 66  # an id, signed or unsigned, of 64 bits and an offset of 32
_LEAST = 1 << 64


class Chains:
    """See the module. typecode: of the array that holds what is before each number."""

    def __init__(self, typecode: str = "i") -> None:
        self._before = array(typecode)  # by number: what is before the id of the same number
        self._places: dict[int, int] = {}  # other ids: the number after their first prefix,
        self._after = array(typecode)  # and by number that prefix
        self._others: dict[int, int] = {}  # one integer for the two takes a third of a tuple

    def __len__(self) -> int:
        return len(self._before)

    def numbers(self, before: int, ids: Iterable[int], added: int = 0) -> list[int]:
        """The numbers of ids one after another, from the prefix `before` on. added: to each id."""
        dense, places, after = self._before, self._places, self._after
        count = len(dense)
        found = []
        for id_ in ids:
            id_ += added
            if 0 <= id_ < count and dense[id_] == before:
                before = id_
            else:
                place = places.get(id_, -1)
                if place >= 0 and after[place] == before:
                    before = place
                else:
                    before = self.number(before, id_)
                    count = len(dense)
            found.append(before)
        return found

    def number(self, before: int, id_: int) -> int:
        """The number of this id after the prefix `before`: known, or the next one.

        before: a number, or what else stands for the prefix; not -2**31. Raises OverflowError when
        the numbers are used up.
        """
        count = len(self._before)
        if 0 <= id_ < count and self._before[id_] == before:
            return id_
        place = self._places.get(id_)
        if place is not None and self._after[place] == before:
            return place
        known = self._others.get(before << _ID_BITS | id_ + _LEAST) if self._others else None
        if known is not None:
            return known
        if count == MOST:
            raise OverflowError
        counts_on = id_ == count
        self._before.append(before if counts_on else _ELSEWHERE)
        self._after.append(_ELSEWHERE)
        if not counts_on and place is None:
            self._places[id_] = count
            self._after[count] = before
        elif not counts_on:
            self._others[before << _ID_BITS | id_ + _LEAST] = count
        return count
