"""Which earlier request each request continues: the turns of conversations, from sessions or from
prompts.

A prompt that extends an earlier prompt continues it: all whole pages of the earlier one are at its
start, and it is longer. Of several such requests, the one with the longest prompt counts, of these
the latest. A prompt that many different prompts go on from is a text that conversations share
(a system prompt), not the turn before them. Everything is found with a few operations on columns,
so the time is about linear in the pages of the trace, and the memory is that of a part of it.
Does not read fields of any format, and does not count hits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...formats._jobs import Jobs
from ...formats.base import Paged

Places = NDArray[np.int64]
Numbers = NDArray[np.int32]

NOBODY = -1
MOST_BRANCHES = 8  # different pages that may follow the end of a turn
_MOST_LOOKS = 8  # prompts with the same whole pages
_PART = 1 << 22  # pages that are looked at at a time


def by_session(jobs: Jobs) -> Numbers:
    """The request before each one in its session; -1 for the first one, or without a session."""
    sessions = jobs.sessions
    found = np.full(len(jobs), NOBODY, dtype=np.int32)
    order = np.argsort(sessions, kind="stable")
    same = (sessions[order][1:] == sessions[order][:-1]) & (sessions[order][1:] >= 0)
    found[order[1:][same]] = order[:-1][same]
    return found


def by_prompt(paged: Paged) -> Numbers:
    """The request whose prompt each one extends; -1 if there is none."""
    jobs = paged.jobs
    lengths = jobs.input_lengths
    whole = lengths // paged.page_size
    parts = list(_parts(paged, whole)) if int(whole.sum(dtype=np.int64)) <= _PART else None
    branches, ends = _branches(parts or _parts(paged, whole), len(jobs))
    # one key for each end of a prompt: its page, then its request, so that the latest is found
    numbers = np.flatnonzero(ends >= 0)
    keys = np.sort(ends[numbers] * len(jobs) + numbers)
    first = np.full(len(branches), len(jobs), dtype=np.int64)
    np.minimum.at(first, ends[numbers], numbers)
    first[branches > MOST_BRANCHES] = len(jobs)
    found = np.full(len(jobs), NOBODY, dtype=np.int32)
    for pages, owners, starts in parts or _parts(paged, whole):
        candidate = first[pages] < owners
        for place in _deepest(candidate, starts):
            owner = int(owners[place])
            found[owner] = _shorter(keys, int(pages[place]), owner, lengths)
            while found[owner] == NOBODY and place and owners[place - 1] == owner:
                place -= 1  # a request of the same whole pages was asked again; look above it
                if candidate[place]:
                    found[owner] = _shorter(keys, int(pages[place]), owner, lengths)
    return found


def numbered(before: Numbers) -> Numbers:
    """The turn of each request, from 0."""
    turns = [0] * len(before)
    for index, earlier in enumerate(before.tolist()):
        if earlier != NOBODY:
            turns[index] = turns[earlier] + 1
    return np.array(turns, dtype=np.int32)


def _parts(paged: Paged, whole: Numbers) -> Iterator[tuple[Places, Places, Places]]:
    """The whole pages of prompts, several requests at a time: pages, the request of each, and where
    each request begins."""
    chains: list[Places] = []
    owners: list[int] = []
    held = 0
    for job in paged.jobs:
        chain = paged.chain(job)[: whole[job.index]]
        if not len(chain):
            continue
        chains.append(chain)
        owners.append(job.index)
        held += len(chain)
        if held >= _PART:
            yield _together(chains, owners)
            chains, owners, held = [], [], 0
    if chains:
        yield _together(chains, owners)


def _together(chains: list[Places], owners: list[int]) -> tuple[Places, Places, Places]:
    sizes = np.array([len(chain) for chain in chains], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    return np.concatenate(chains), np.repeat(np.array(owners, dtype=np.int64), sizes), starts


def _branches(
    parts: Iterator[tuple[Places, Places, Places]] | list[tuple[Places, Places, Places]],
    requests: int,
) -> tuple[Numbers, Places]:
    """How many different pages follow each page, and the last whole page of each prompt."""
    branches = np.zeros(1, dtype=np.int32)
    seen = np.zeros(1, dtype=np.bool_)
    ends = np.full(requests, NOBODY, dtype=np.int64)
    for pages, owners, starts in parts:
        most = int(pages.max()) + 1
        if most > len(seen):
            seen = np.concatenate((seen, np.zeros(most, dtype=np.bool_)))
            branches = np.concatenate((branches, np.zeros(most, dtype=np.int32)))
        last = np.append(starts[1:], len(pages)) - 1
        ends[owners[last]] = pages[last]
        inside = np.ones(len(pages), dtype=np.bool_)
        inside[starts] = False
        new, where = np.unique(pages, return_index=True)
        where = where[~seen[new] & inside[where]]
        np.add.at(branches, pages[where - 1], 1)
        seen[new] = True
    return branches, ends


def _deepest(candidate: NDArray[np.bool_], starts: Places) -> Iterator[int]:
    """The last place of each request that is a candidate."""
    places = np.where(candidate, np.arange(len(candidate)), NOBODY)
    deepest = np.maximum.reduceat(places, starts)
    yield from deepest[deepest != NOBODY].tolist()


def _shorter(keys: Places, page: int, owner: int, lengths: Numbers) -> int:
    """The latest request before this one whose prompt ends with the page and is shorter; -1 if none
    of the last few is."""
    before = owner
    for _ in range(_MOST_LOOKS):
        before = _latest(keys, page, before, len(lengths))
        if before == NOBODY or lengths[before] < lengths[owner]:
            return before
    return NOBODY


def _latest(keys: Places, page: int, before: int, requests: int) -> int:
    """The latest request before this one whose prompt ends with the page; -1 if there is none."""
    place = int(np.searchsorted(keys, page * requests + before)) - 1
    if place < 0 or keys[place] // requests != page:
        return NOBODY
    return int(keys[place] % requests)
