"""The requests of a trace in columns: 36 bytes a request, and a `Job` only while it is looked at.

Lives here: the columns that every format fills and that everybody reads, the tenant of each
request, and numbers for chained ids. Does not know the tokens of a request; see the formats.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from sim.sending import SenderOptions
from sim.workload import Job

_LONGEST_NS = 1 << 62
MOST = (1 << 31) - 1  # numbers are stored in 32 bits
_ELSEWHERE = -(1 << 31)
_ID_BITS = 66  # an id, signed or unsigned, of 64 bits and an offset of 32
_LEAST = 1 << 64


class Jobs(Sequence[Job]):
    """The requests in order. Whoever needs one property of all requests reads its column.

    sender: how the client of a benchmark sends them; None if each is sent when it arrives.
    timed: whether the trace says when they arrive.
    """

    def __init__(self) -> None:
        self.sender: SenderOptions | None = None
        self.timed = True
        self._numbers: array[int] | None = None  # where some requests were left out
        # arrival_ns, input_length, output_length, after, session, priority
        self._columns: tuple[array[int], ...] = tuple(array(code) for code in "qiiiiq")

    def add(
        self,
        arrival_ns: int,
        input_length: int,
        output_length: int,
        after: int = -1,
        session: int = -1,
        priority: int = 0,
    ) -> None:
        """Appends a request. No column may have been read before."""
        values = arrival_ns, input_length, output_length, after, session, priority
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def only(self, numbers: NDArray[np.integer[Any]]) -> Jobs:
        """Some of the requests. They keep their numbers; their places are counted from 0."""
        some = self._taken(numbers)
        some._numbers = array("i", numbers.tolist())
        return some

    def retimed(self, arrivals_ns: NDArray[np.int64], afters: NDArray[np.int32]) -> Jobs:
        """The same requests with other times, and other requests that they wait for."""
        jobs = copy(self)
        _, prompts, outputs, _, *rest = self._columns
        times = array("q", arrivals_ns.astype(np.int64).tobytes())
        waits = array("i", afters.astype(np.int32).tobytes())
        jobs._columns = (times, prompts, outputs, waits, *rest)
        return jobs

    def reordered(self, order: NDArray[np.integer[Any]]) -> Jobs:
        """The requests in another order, renumbered; some may be left out. order: of each place,
        the request that comes there; none comes before the one that it waits for."""
        place = np.full(len(self) + 1, -1, dtype=np.int32)  # the last one is of -1
        place[order] = np.arange(len(order))
        first = np.full(len(self) + 1, len(self), dtype=np.int32)  # of each session
        np.minimum.at(first, self.sessions[order], place[order])
        first[-1] = -1
        jobs = self._taken(order)
        jobs.afters[:] = place[jobs.afters]
        jobs.sessions[:] = first[jobs.sessions]
        return jobs

    def _taken(self, places: NDArray[np.integer[Any]]) -> Jobs:
        jobs = copy(self)
        jobs._columns = tuple(
            array(column.typecode, np.asarray(column)[places].tobytes()) for column in self._columns
        )
        return jobs

    def begin_at_zero(self) -> None:
        """Lets times count from the first arrival."""
        timed = self.afters < 0
        arrivals = self.arrivals_ns
        arrivals[timed] -= arrivals[timed].min()

    def spread(self, seed: int = 0) -> None:
        """Requests that arrive at one instant now arrive evenly until the next one, in their order,
        and within the median distance of two instants; with a seed above 0, at random times in that
        time, in their order. Those that wait for another request keep their delays."""
        timed = np.flatnonzero(self.afters < 0)
        arrivals = self.arrivals_ns
        instants, first, which, counts = np.unique(
            arrivals[timed], return_index=True, return_inverse=True, return_counts=True
        )
        if len(instants) < 2:
            return
        apart = np.diff(instants)
        usual = int(np.median(apart))
        room = np.minimum(np.append(apart, usual), usual)
        if seed:
            draw = np.random.Generator(np.random.PCG64([seed, len(timed)]))
            late = draw.integers(0, np.maximum(room, 1)[which])
            order = np.lexsort((late, which))
            arrivals[timed] = instants[which] + late[order]
            return
        turn = np.arange(len(timed)) - first[which]
        step, rest = np.divmod(room, counts)  # turn * room could exceed 64 bits
        arrivals[timed] = instants[which] + turn * step[which] + turn * rest[which] // counts[which]

    def space(self) -> None:
        """Sessions that all begin at one instant now begin evenly, in their order, over the length
        of the longest one: the pauses of its requests. Those that wait for another request keep
        their delays."""
        timed = np.flatnonzero(self.afters < 0)
        step, rest = divmod(self._longest_ns(), len(timed))
        turn = np.arange(len(timed))
        self.arrivals_ns[timed] += turn * step + turn * rest // len(timed)

    @property
    def begin_together(self) -> bool:
        """Whether there are several requests that wait for no other, and all have one time."""
        times = self.arrivals_ns[self.afters < 0]
        return len(times) > 1 and bool((times == times[0]).all())

    def _longest_ns(self) -> int:
        """The most time from a request that waits for no other to one that follows it, if none took
        time to serve; at most the longest time of a trace."""
        follows = self.afters >= 0
        pauses = self.retimed(np.where(follows, self.arrivals_ns, 0), self.afters)
        return int(pauses.times_ns.max(initial=0))

    @property
    def times_ns(self) -> NDArray[np.int64]:
        """When each request arrives if none takes time to serve; at most the longest time of a
        trace."""
        if not (self.afters >= 0).any():
            return np.minimum(self.arrivals_ns, _LONGEST_NS)
        found: dict[int, int] = {}  # by number
        for number, after, time in zip(
            self._order(), self._columns[3], self._columns[0], strict=True
        ):
            found[number] = min(time + (found[after] if after >= 0 else 0), _LONGEST_NS)
        return np.array(list(found.values()), dtype=np.int64)

    @property
    def numbers(self) -> NDArray[np.int32]:
        """The request at each place."""
        return np.asarray(self._order(), dtype=np.int32)

    @property
    def input_tokens(self) -> int:
        """The prompt tokens of all requests."""
        return int(self.input_lengths.sum(dtype=np.int64))

    @property
    def arrivals_ns(self) -> NDArray[np.int64]:
        return np.asarray(self._columns[0])

    @property
    def input_lengths(self) -> NDArray[np.int32]:
        return np.asarray(self._columns[1])

    @property
    def output_lengths(self) -> NDArray[np.int32]:
        return np.asarray(self._columns[2])

    @property
    def afters(self) -> NDArray[np.int32]:
        return np.asarray(self._columns[3])

    @property
    def sessions(self) -> NDArray[np.int32]:
        """The first request of each request's session; -1 without one."""
        return np.asarray(self._columns[4])

    @property
    def priorities(self) -> NDArray[np.int64]:
        return np.asarray(self._columns[5])

    def session(self, place: int) -> int:
        """The session of the request there."""
        return self._columns[4][place]

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Job]:
        return map(Job, self._order(), *self._columns)

    @overload
    def __getitem__(self, index: int) -> Job: ...

    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...

    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        return Job(self._order()[places], *(column[places] for column in self._columns))

    def _order(self) -> Sequence[int]:
        return range(len(self)) if self._numbers is None else self._numbers


class Tenants:
    """The tenant of each request: a number each, and the names once."""

    def __init__(self) -> None:
        self._of = array("i")
        self._places: dict[str, int] = {}

    def add(self, name: str = "") -> None:
        """Appends the tenant of the next request. name: empty if the file names none."""
        self._of.append(self._places.setdefault(name, len(self._places)))

    @property
    def numbers(self) -> NDArray[np.int32]:
        return np.asarray(self._of)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)


class Chains:
    """Numbers for chained ids: equal numbers mean equal ids after equal prefixes.

    Most files number their ids 0, 1, 2, ... in the order of first use, and use each after one
    prefix only; these need a few bytes an id, others a place in a dictionary. The table can go when
    the file was read. typecode: of the array that holds what is before each number.
    """

    def __init__(self, typecode: str = "i") -> None:
        self._before = array(typecode)  # by number: what is before the id of the same number
        self._others: dict[int, int] = {}  # numbers of other ids, by what is before and the id

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
        key = before << _ID_BITS | id_ + _LEAST
        known = self._others.get(key) if self._others else None
        if known is not None:
            return known
        if count == MOST:
            raise OverflowError
        counts_on = id_ == count
        self._before.append(before if counts_on else _ELSEWHERE)
        if not counts_on:
            self._others[key] = count
        return count
