"""The sessions of a trace: which requests belong together, when each begins and how long it is.

A session is what the trace names so, together with the requests that wait for one of its requests.
Where a trace names no session with two requests, those with a common prefix that few others have
are one (see formats/_with_jobs); a request without any is a session of its own. Does not choose
any; see scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...formats._jobs import Jobs
from ...formats._with_jobs import by_prefix
from ...formats.base import Trace

Numbers = NDArray[np.int64]

_FEW = 8  # requests with a common prefix are a session, however short the trace is


@dataclass(frozen=True, slots=True)
class Sessions:
    """of: the session of each request; sessions are numbered in the order of their beginnings.

    times_ns: of each request, when it arrives if no request takes time to serve. starts_ns,
    ends_ns: of each session, the least and the most of these times. tokens: of each session,
    prompts and outputs. named: whether the trace says which requests belong together.
    """

    of: Numbers
    times_ns: Numbers
    starts_ns: Numbers
    ends_ns: Numbers
    tokens: Numbers
    named: bool

    def __len__(self) -> int:
        return len(self.starts_ns)

    @property
    def requests(self) -> list[Numbers]:
        """The requests of each session, in order."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.of[order])) + 1)


def sessions_of(trace: Trace, jobs: Jobs) -> Sessions:
    """jobs: the requests of the trace, which may wait for others and arrive at other times."""
    named = _says(trace.jobs)
    roots = list(range(len(jobs)))
    _join(roots, trace.jobs.sessions if named else _firsts(by_prefix(trace, _FEW, alone=True)))
    _join(roots, trace.jobs.afters)
    _join(roots, jobs.afters)
    first, of = np.unique([_root(roots, place) for place in range(len(jobs))], return_inverse=True)
    times = jobs.times_ns
    ends = np.zeros(len(first), dtype=np.int64)
    tokens = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(ends, of, times)
    np.add.at(tokens, of, jobs.input_lengths.astype(np.int64) + jobs.output_lengths)
    return Sessions(of, times, times[first], ends, tokens, named)


def _says(jobs: Jobs) -> bool:
    """Whether a request waits for another, or a session has two requests."""
    sessions = jobs.sessions[jobs.sessions >= 0]
    return bool((jobs.afters >= 0).any()) or len(np.unique(sessions)) < len(sessions)


def _firsts(groups: Numbers) -> Numbers:
    """The first request of each request's group."""
    _, first, which = np.unique(groups, return_index=True, return_inverse=True)
    return first[which]


def _join(roots: list[int], others: NDArray[np.integer[Any]]) -> None:
    """Puts each request together with another one. others: -1 for none."""
    for place in np.flatnonzero(others >= 0).tolist():
        one, other = _root(roots, place), _root(roots, int(others[place]))
        roots[max(one, other)] = min(one, other)


def _root(roots: list[int], place: int) -> int:
    while roots[place] != place:
        roots[place] = roots[roots[place]]
        place = roots[place]
    return place
