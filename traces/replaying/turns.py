"""Which turn of a conversation each request is, and how much each turn hit.

In a closed loop, a request is the next turn of another one if it waits for the end of that one and
its prompt begins with that one's prompt; requests that only queue behind others are not turns.
Where nothing waits, the sessions of the trace tell the turns, and without sessions the prompts (see
load/turns). Does not read fields of any format.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..formats.base import Paged, Trace
from ..results.record import Turn
from .account import Account
from .load.turns import by_prompt, by_session, numbered


def conversations(trace: Trace, whole: Paged) -> tuple[NDArray[np.int32], str]:
    """The turn of each request, from 0, and what tells it: after, session or prompt. whole: the
    trace in pages, with all of its requests."""
    if (whole.jobs.afters >= 0).any():
        return turns_of(whole), "after"
    before = by_session(whole.jobs)
    if (before >= 0).any() or not trace.identity:
        return numbered(before), "session"
    size = trace.block_size or whole.page_size
    return numbered(by_prompt(whole if size == whole.page_size else trace.paged(size))), "prompt"


def turns_of(trace: Paged) -> NDArray[np.int32]:
    """The turn of each request, counted from 0; 0 also for a request without conversation."""
    jobs = trace.jobs
    turns = np.zeros(len(jobs), dtype=np.int32)
    for index in np.flatnonzero(jobs.afters >= 0).tolist():
        job = jobs[index]
        before = jobs[job.after]
        history = trace.chain(before)[: before.input_length // trace.page_size]
        whole = len(history)
        repeated = trace.chain(job)[:whole]
        longer = job.input_length > before.input_length
        if whole and longer and np.array_equal(history, repeated):
            turns[index] = turns[job.after] + 1
    return turns


def by_turn(account: Account, turns: NDArray[np.int32]) -> list[Turn]:
    """One entry for each turn of served requests; empty if no request continues another."""
    if not turns.any():
        return []
    served = account.all_served()
    found = turns[served]
    result = []
    for turn in np.unique(found).tolist():
        indices = served[found == turn]
        hit, total = account.hit_tokens(indices)
        result.append(Turn(turn + 1, len(indices), total, hit))
    return result
