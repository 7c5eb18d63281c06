"""Which turn of a conversation each request is, and how much each turn hit.

A request is the next turn of another one if it waits for the end of that one and its prompt begins
with that one's prompt. Requests that only queue behind others are not turns. Does not read fields
of any format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..formats.base import Paged
from .account import Account


@dataclass(frozen=True, slots=True)
class Turn:
    """All requests that are the same turn of their conversations, at their first admission."""

    turn: int
    requests: int
    input_tokens: int
    hit_tokens: int

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0


def turns_of(trace: Paged) -> list[int]:
    """The turn of each request, counted from 0; 0 also for a request without conversation."""
    turns: list[int] = []
    for job in trace.jobs:
        turn = 0
        if job.after >= 0:
            before = trace.jobs[job.after]
            whole = before.input_length // trace.page_size
            history = trace.chain(before)[:whole]
            repeated = trace.chain(job)[:whole]
            longer = job.input_length > before.input_length
            if whole and longer and np.array_equal(history, repeated):
                turn = turns[job.after] + 1
        turns.append(turn)
    return turns


def by_turn(account: Account, turns: Sequence[int]) -> list[Turn]:
    """One entry for each turn of served requests; empty if no request continues another."""
    if not any(turns):
        return []
    groups: list[list[int]] = [[] for _ in range(max(turns) + 1)]
    for index, turn in enumerate(turns):
        if account.served(index):
            groups[turn].append(index)
    result = []
    for turn, indices in enumerate(groups):
        if not indices:
            continue  # interrupted before it
        hit, total = account.hit_tokens(indices)
        result.append(Turn(turn + 1, len(indices), total, hit))
    return result
