"""Which turn of a conversation each request is, and how much each turn hit.

A request is a turn behind another where it waits for that one's end and its prompt begins with that
one's. Must not live here: any format's field; requests that only queue behind others are no turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..formats.base import Paged
from .account import Account


@dataclass(frozen=True, slots=True)
class Turn:
    """All requests that are the same turn of their conversations, first seatings."""

    turn: int
    requests: int
    input_tokens: int
    hit_tokens: int

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0


def turns_of(trace: Paged) -> list[int]:
    """Per request, 0 for a first turn or no conversation."""
    turns: list[int] = []
    for job in trace.jobs:
        turn = 0
        if job.after >= 0:
            before = trace.jobs[job.after]
            whole = before.input_length // trace.page_size
            history = trace.chain(before)[:whole]
            again = trace.chain(job)[:whole]
            longer = job.input_length > before.input_length
            if whole and longer and np.array_equal(history, again):
                turn = turns[job.after] + 1
        turns.append(turn)
    return turns


def by_turn(account: Account, turns: Sequence[int]) -> list[Turn]:
    """One entry per turn; empty where no request continues another."""
    if not any(turns):
        return []
    groups: list[list[int]] = [[] for _ in range(max(turns) + 1)]
    for index, turn in enumerate(turns):
        groups[turn].append(index)
    found = []
    for turn, indices in enumerate(groups):
        hit, total = account.hit_tokens(indices)
        found.append(Turn(turn + 1, len(indices), total, hit))
    return found
