"""Numbers for chained ids: equal numbers mean equal ids after equal prefixes.

Lives here: the table that a format fills while it reads. Most files number their ids 0, 1, 2, ...
in the order of first use, and use each after one prefix only. Such a file needs a few bytes an id;
what differs from that is kept in a dictionary, at about 150 bytes an id. The table can go when the
file was read.
"""

from __future__ import annotations

from array import array

MOST = (1 << 31) - 1  # numbers are stored in 32 bits
_ELSEWHERE = -(1 << 31)
_ID_BITS = 66  # an id, signed or unsigned, of 64 bits and an offset of 32
_LEAST = 1 << 64


class Chains:
    """See the module. typecode: of the array that holds what is before each number."""

    def __init__(self, typecode: str = "i") -> None:
        self._before = array(typecode)
        self._others: dict[int, int] = {}  # one integer for the two takes a third of a tuple

    def __len__(self) -> int:
        return len(self._before)

    def number(self, before: int, id_: int) -> int:
        """The number of this id after the prefix `before`: known, or the next one.

        before: a number, or what else stands for the prefix; not -2**31. Raises OverflowError when
        the numbers are used up.
        """
        count = len(self._before)
        if 0 <= id_ < count and self._before[id_] == before:
            return id_
        known = self._others.get(before << _ID_BITS | id_ + _LEAST) if self._others else None
        if known is not None:
            return known
        if count == MOST:
            raise OverflowError
        if id_ == count:
            self._before.append(before)
        else:
            self._others[before << _ID_BITS | id_ + _LEAST] = count
            self._before.append(_ELSEWHERE)
        return count
