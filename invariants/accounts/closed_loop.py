"""When requests arrive with a fixed number of them in flight, from the times at which they end.

A second account of what the simulator does while it runs: here all ends are known, so each instant
is looked at once. Free places go to the first requests of the trace that may arrive: those that
follow no other from the start, the others when the one before has ended and their delay has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from .accounts import Entry, Job


def arrivals_ns(
    jobs: Sequence[Job], ended_ns: Mapping[int, int], concurrency: int, speed: Fraction
) -> dict[int, int]:
    """The arrival of each request. ended_ns: of each request, by its number."""
    may_from = {job.index: 0 if job.after < 0 else None for job in jobs}
    delays = {job.index: int(Fraction(job.arrival_ns) / speed) for job in jobs if job.after >= 0}
    followers: dict[int, list[int]] = {}
    for job in jobs:
        followers.setdefault(job.after, []).append(job.index)
    found: dict[int, int] = {}
    instants = [0]
    free = concurrency
    while instants:
        now_ns = min(instants)
        instants = [one for one in instants if one != now_ns]
        for index in [one for one, came_ns in found.items() if ended_ns[one] == now_ns]:
            free += 1
            for follower in followers.get(index, ()):
                may_from[follower] = now_ns + delays[follower]
                if delays[follower]:
                    instants.append(now_ns + delays[follower])
        for index in sorted(may_from):
            begins_ns = may_from[index]
            if free and index not in found and begins_ns is not None and begins_ns <= now_ns:
                found[index] = now_ns
                instants.append(ended_ns[index])
                free -= 1
    return found


def apply(
    entries: Mapping[int, Entry], jobs: Sequence[Job], concurrency: int, speed: Fraction
) -> None:
    """Gives each entry its arrival. No request has an arrival time of its own then."""
    ended = {index: one.finish_ns for index, one in entries.items()}
    for index, time_ns in arrivals_ns(jobs, ended, concurrency, speed).items():
        entries[index].arrival_ns, entries[index].timed = time_ns, False
