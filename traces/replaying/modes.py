"""Runs one replay of a trace: sets up the observers, plays it, returns the results."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from invariants.watch import Watch
from sim.rounds import RoundOptions

from ..formats.base import Paged, Trace
from ..terminal.progress import progress
from .account import Account, by_turn, ceiling_of, conversations
from .config import ReplayConfig
from .observing.ending import Hopeless
from .observing.team import Team
from .playing import Moving, Play, play
from .run import Run
from .sizes import Kept
from .storage_use import opened

Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def run(
    trace: Trace,
    paged: Paged,
    settings: ReplayConfig,
    watch: Watch | None,
    start: float,
    follow: bool = False,
    until: int | None = None,
    shown: Progress | None = None,
    hopeless: Hopeless | None = None,
    moving: Moving | None = None,
    timeline: bool = False,
) -> Run:
    """One replay in the mode of the settings. start: time.perf_counter() when the command began.

    follow: keep the history of every page, and with a clock the time of every copy. until: stop
    when this request has been served. shown: shows the progress, instead of standard error.
    hopeless: stop when too many requests have missed their limits. moving: moves real bytes.
    timeline: with a clock, keep what `--timeline` draws.
    """
    whole, skipped = paged, settings.skipped
    paged = Kept(paged, skipped) if skipped.requests else paged
    ceiling = ceiling_of(paged, whole_prompts=settings.whole_prompts)
    account = Account(trace.jobs, paged.page_size, ceiling)
    turns, told_by = conversations(trace, whole)
    rounds_of = turns if told_by == "after" else np.zeros_like(turns)
    team = Team(whole, settings, ceiling, watch, follow, until, timeline)
    rounds = RoundOptions(rounds_of.tolist(), settings.flushed) if settings.flushed else None
    with opened(settings) as contents:
        played = Play(whole, paged, settings, account, team, contents, rounds, moving=moving)
        told = (shown or progress)("replay", len(paged.jobs))
        if hopeless is not None:
            played = replace(played, begun=hopeless.begin)
            told = hopeless.watching(told)
        result = play(played, told)
    return replace(
        result,
        turns=by_turn(account, turns),
        turns_from=told_by,
        wall_s=time.perf_counter() - start,
    )
