"""The requests of a trace in columns: 36 bytes a request, and a `Job` only while it is looked at.

Lives here: the columns that every format fills and that everybody reads. Does not know the tokens
of a request; see the formats.
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


class Jobs(Sequence[Job]):
    """The requests in order. Whoever needs one property of all requests reads its column.

    sender: how the client of a benchmark sends them; None if each is sent when it arrives.
    """

    def __init__(self) -> None:
        self.sender: SenderOptions | None = None
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
        some.sender = self.sender
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
