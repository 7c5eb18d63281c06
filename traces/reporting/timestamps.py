"""Warnings about arrival times: a mistaken unit, no times, long gaps, a coarse clock.

A trace whose times go backwards is refused when it is read; see traces/formats. The limits lie far
from every public trace: the busiest of them asks for 0.05 million input tokens a second.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hicache.core.types import Pages

from ..formats._jobs import Jobs
from ..replaying.load import RECORDED, LoadSettings

_LEAST_REQUESTS = 10
_MOST_TOKENS_PER_S = 1_000_000
_LONG_S = 3600.0
_CROWD = 4  # requests at one instant, on average
_NS_PER_S = 1e9


def warnings(jobs: Jobs, speed: Fraction, load: LoadSettings | None = None) -> list[str]:
    """What looks wrong, one sentence each with what to do. speed: the factor of `--speed`. load:
    how requests arrive; times that it replaces or does not read are not judged."""
    if jobs.sender is not None:
        return []  # its client paces the requests
    load = load or LoadSettings()
    found = _thinking(jobs, speed)
    if load.concurrency:
        return found
    if load.arrivals.name != RECORDED or load.request_rate is not None:
        return [*found, *_too_fast(jobs)]
    return [*found, *_recorded(jobs, speed)]


def _thinking(jobs: Jobs, speed: Fraction) -> list[str]:
    """Pauses before the next turn that nobody makes."""
    delays = jobs.arrivals_ns[jobs.afters >= 0]
    if len(delays) < _LEAST_REQUESTS:
        return []
    usual_s = float(np.median(delays)) / _NS_PER_S / float(speed)
    if usual_s < _LONG_S:
        return []
    return [
        f"Half of the {len(delays):,} requests that follow another one do so after "
        f"{_seconds(usual_s)} or more; if the trace has other units than milliseconds, play it "
        "faster with --speed, or give --think-time."
    ]


def _too_fast(jobs: Jobs) -> list[str]:
    """Arrivals of a load model at a rate that is hardly meant."""
    free = np.flatnonzero(jobs.afters < 0)
    times = jobs.arrivals_ns[free]
    span_s = float(times[-1] - times[0]) / _NS_PER_S
    tokens = int(jobs.input_lengths[free].sum(dtype=np.int64))
    if not span_s or tokens / span_s <= _MOST_TOKENS_PER_S:
        return []
    return [
        f"The requests arrive within {_seconds(span_s)}: {tokens / span_s / 1e6:,.1f} million "
        "input tokens a second. --request-rate is in requests a second."
    ]


def _recorded(jobs: Jobs, speed: Fraction) -> list[str]:
    indices = np.flatnonzero(jobs.afters < 0)
    times = jobs.arrivals_ns[indices]
    if jobs.begin_together and len(times) < len(jobs):
        return [
            f"{len(times):,} sessions of {len(jobs):,} requests begin at the same time. Unless "
            "they are spaced (--spread, or --request-rate with a rate of yours), times to first "
            "token contain the queue of their first requests."
        ]
    if len(times) < _LEAST_REQUESTS:
        return []
    tokens = int(jobs.input_lengths[indices].sum(dtype=np.int64))
    first_s, span_s = times[0] / _NS_PER_S, (times[-1] - times[0]) / _NS_PER_S
    if not span_s:
        return [
            f"All {len(times):,} requests arrive at the same time, so the times to first token say "
            "how long the whole queue takes; if the trace has no times, use --mode hits."
        ]
    found = []
    rate = tokens / span_s * float(speed)
    if rate > _MOST_TOKENS_PER_S:
        found.append(
            f"The requests arrive within {_seconds(span_s / float(speed))}: {rate / 1e6:,.1f} "
            "million input tokens a second. If the timestamps are seconds, use "
            f"--speed {float(speed) / 1000:g}."
        )
    if first_s > _LONG_S:
        found.append(
            f"The first request arrives after {_seconds(first_s)}, and the makespan counts from 0; "
            "subtract the first timestamp from all of them."
        )
    found += _gap(indices, times, span_s)
    found += _coarse(times)
    return found


def is_coarse(jobs: Jobs) -> bool:
    """Whether several requests arrive at each instant, on average."""
    return bool(_coarse(jobs.arrivals_ns[jobs.afters < 0]))


def _coarse(times: Pages) -> list[str]:
    instants, counts = np.unique(times, return_counts=True)
    if len(instants) < 2 or len(times) < _CROWD * len(instants):
        return []
    apart_s = float(np.median(np.diff(instants))) / _NS_PER_S
    return [
        f"The clock of the trace is coarse: {len(times):,} requests arrive at {len(instants):,} "
        f"instants, mostly {_seconds(apart_s)} apart and up to {counts.max():,} at once. Times to "
        "first token contain the queue of each batch; --spread lets its requests arrive evenly."
    ]


def _gap(indices: Pages, times: Pages, span_s: float) -> list[str]:
    gaps = np.diff(times)
    place = int(gaps.argmax())
    gap_s = gaps[place] / _NS_PER_S
    if gap_s < _LONG_S or gap_s < span_s / 2:
        return []
    return [
        f"No request arrives for {_seconds(gap_s)} of {_seconds(span_s)}: check the timestamps of "
        f"requests {indices[place]} and {indices[place + 1]}."
    ]


def _seconds(time_s: float) -> str:
    return f"{time_s:,.1f} s" if time_s < _LONG_S else f"{time_s / 3600:,.1f} h"
