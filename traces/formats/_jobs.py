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
        self._arrival_ns = array("q")
        self._input_length = array("i")
        self._output_length = array("i")
        self._after = array("i")
        self._session = array("i")
        self._priority = array("q")

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
        self._arrival_ns.append(arrival_ns)
        self._input_length.append(input_length)
        self._output_length.append(output_length)
        self._after.append(after)
        self._session.append(session)
        self._priority.append(priority)

    def only(self, numbers: NDArray[np.integer[Any]]) -> Jobs:
        """Some of the requests. They keep their numbers; their places are counted from 0."""
        some = Jobs()
        some.sender, some.timed = self.sender, self.timed
        for number in numbers.tolist():
            some.add(*(column[number] for column in self._columns()))
        some._numbers = array("i", numbers.tolist())
        return some

    def retimed(self, arrivals_ns: NDArray[np.int64], afters: NDArray[np.int32]) -> Jobs:
        """The same requests with other times, and other requests that they wait for."""
        jobs = copy(self)
        jobs._arrival_ns = array("q", arrivals_ns.astype(np.int64).tobytes())
        jobs._after = array("i", afters.astype(np.int32).tobytes())
        return jobs

    def answered(self, output_length: int) -> Jobs:
        """The same requests with answers of this length."""
        jobs = copy(self)
        jobs._output_length = array("i", [output_length]) * len(self)
        return jobs

    def reordered(self, order: NDArray[np.integer[Any]]) -> Jobs:
        """The same requests in another order, renumbered. order: of each place, the request that
        comes there; none may come before the one that it waits for."""
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        sessions = self.sessions
        named = sessions >= 0
        first = np.full(len(order), len(order), dtype=np.int64)
        np.minimum.at(first, sessions[named], place[named])
        jobs = Jobs()
        jobs.timed = self.timed
        for number in order.tolist():
            after, session = self._after[number], self._session[number]
            jobs.add(
                self._arrival_ns[number],
                self._input_length[number],
                self._output_length[number],
                int(place[after]) if after >= 0 else -1,
                int(first[session]) if session >= 0 else -1,
                self._priority[number],
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
        for number, after, time in zip(self._order(), self._after, self._arrival_ns, strict=True):
            found[number] = min(time + (found[after] if after >= 0 else 0), _LONGEST_NS)
        return np.array(list(found.values()), dtype=np.int64)

    @property
    def numbers(self) -> NDArray[np.int32]:
        """The request at each place."""
        if self._numbers is not None:
            return np.asarray(self._numbers)
        return np.arange(len(self), dtype=np.int32)

    @property
    def input_tokens(self) -> int:
        """The prompt tokens of all requests."""
        return int(self.input_lengths.sum(dtype=np.int64))

    @property
    def arrivals_ns(self) -> NDArray[np.int64]:
        return np.asarray(self._arrival_ns)

    @property
    def input_lengths(self) -> NDArray[np.int32]:
        return np.asarray(self._input_length)

    @property
    def output_lengths(self) -> NDArray[np.int32]:
        return np.asarray(self._output_length)

    @property
    def afters(self) -> NDArray[np.int32]:
        return np.asarray(self._after)

    @property
    def priorities(self) -> NDArray[np.int64]:
        return np.asarray(self._priority)

    def session(self, place: int) -> int:
        """The session of the request there."""
        return self._session[place]

    @property
    def sessions(self) -> NDArray[np.int32]:
        """The first request of each request's session; -1 without one."""
        return np.asarray(self._session)

    def __len__(self) -> int:
        return len(self._input_length)

    def __iter__(self) -> Iterator[Job]:
        return map(Job, self._order(), *self._columns())

    @overload
    def __getitem__(self, index: int) -> Job: ...

    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...

    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        return Job(self._order()[places], *(column[places] for column in self._columns()))

    def _order(self) -> Sequence[int]:
        return range(len(self)) if self._numbers is None else self._numbers

    def _columns(self) -> tuple[array[int], ...]:
        return (
            self._arrival_ns,
            self._input_length,
            self._output_length,
            self._after,
            self._session,
            self._priority,
        )


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
    prefix only. Such a file needs a few bytes an id. An id that does not count on is looked up in a
    dictionary, at about 120 bytes an id; one that comes after several prefixes needs a second one.
    The table can go when the file was read. typecode: of the array that holds what is before each
    number.
    """

    def __init__(self, typecode: str = "i") -> None:
        self._before = array(typecode)  # by number: what is before the id of the same number
        self._places: dict[int, int] = {}  # other ids: the number after their first prefix,
        self._after = array(typecode)  # and by number that prefix, up to the last of these
        self._others: dict[int, int] = {}  # one integer for the two takes a third of a tuple

    def __len__(self) -> int:
        return len(self._before)

    def numbers(self, before: int, ids: Sequence[int], added: int = 0) -> list[int]:
        """The numbers of ids one after another, from the prefix `before` on. added: to each id."""
        dense, places, after = self._before, self._places, self._after
        count = len(dense)
        found: list[int] = []
        first = True  # new id of these: the others often count on from it
        for id_ in ids:
            id_ += added
            if 0 <= id_ < count and dense[id_] == before:
                before = id_
            else:
                place = places.get(id_, -1)
                if place >= 0 and after[place] == before:
                    before = place
                elif place < 0 and id_ == count < MOST:  # what `number` does with most ids
                    dense.append(before)
                    before = id_
                    count += 1
                    if first and not places and count + len(ids) < MOST:
                        first, rest = False, ids[len(found) + 1 :]
                        if rest == [*range(count - added, count - added + len(rest))]:
                            numbers = range(id_, count + len(rest))
                            dense.extend(numbers[:-1])
                            found += numbers
                            break
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
        if not counts_on and place is None:
            self._places[id_] = count
            after = self._after
            after.extend(array(after.typecode, [_ELSEWHERE]) * (count - len(after)))
            after.append(before)
        elif not counts_on:
            self._others[before << _ID_BITS | id_ + _LEAST] = count
        return count
