"""What a replay says before it runs."""

from collections.abc import Iterator
from fractions import Fraction
from typing import TextIO

import numpy as np

from hicache.core.types import Pages

from ..formats.base import Jobs, Trace
from ..replaying.config import ReplayConfig
from ..replaying.traffic import NS_PER_S, RECORDED, LoadSettings
from ..terminal.streams import on_one_screen, print_error
from ..terminal.tables import print_sentences

_LEAST_REQUESTS = 10
_MOST_TOKENS_PER_S = 1_000_000
_LONG_S = 3600.0
_CROWD = 4  # requests at one instant, on average


def warn(trace: Trace, settings: ReplayConfig) -> list[str]:
    """Prints the warnings about the trace, before the run that they may spare; returns them."""
    warnings = [*trace.notes]
    if not trace.identity:
        warnings.append(
            f"{trace.format} has lengths only: each prompt counts as unique, so the times are "
            "those of a cache that never hits, and hit rates say nothing."
        )
    if settings.retention.ttl_ns and settings.speed != 1:
        own_s, speed = settings.retention.ttl_ns / 1e9, float(settings.speed)
        warnings.append(
            f"--ttl is of the replay's time: {own_s:g} s are {own_s * speed:g} s of the "
            f"trace at --speed {speed:g}; give TTL / SPEED for a TTL of the trace's time."
        )
    if settings.mode == "timed":
        warnings += time_warnings(trace.jobs, settings.speed, settings.load)
    for warning in warnings:
        print_error(f"warning: {warning}")
    return warnings


def repeat_warnings(warnings: list[str], out: TextIO) -> None:
    """Prints the warnings with the report, unless `warn` showed them on the same screen."""
    if warnings and not on_one_screen(out):
        print_sentences("Warnings", warnings, out)


def time_warnings(jobs: Jobs, speed: Fraction, load: LoadSettings | None = None) -> list[str]:
    """What looks wrong with arrival times, one sentence each with what to do. speed: the factor of
    `--speed`. load: how requests arrive; times that it replaces or does not read are not judged."""
    load, free = load or LoadSettings(), np.flatnonzero(jobs.afters < 0)
    if jobs.sender is not None or load.concurrency:
        return []  # clients pace the requests
    times, tokens = jobs.arrivals_ns[free], int(jobs.input_lengths[free].sum(dtype=np.int64))
    if len(times) < _LEAST_REQUESTS:
        return []
    recorded = load.arrivals.name == RECORDED and load.request_rate is None
    factor = float(speed) if recorded else 1.0
    span_s = float(times[-1] - times[0]) / NS_PER_S / factor
    if not span_s:
        what = "requests" if len(times) == len(jobs) else "sessions"
        return [
            f"All {len(times):,} {what} begin at the same time, so times to first token contain "
            "the queue of their first requests; space them (--arrivals spread, or --request-rate), "
            "or use --mode hits."
        ]
    warnings = []
    if tokens / span_s > _MOST_TOKENS_PER_S:
        many = f"{tokens / span_s / 1e6:,.1f} million input tokens a second"
        mend = f"If the timestamps are seconds, use --speed {factor / 1000:g}."
        if not recorded:
            mend = "--request-rate is in requests a second."
        warnings.append(f"The requests arrive within {_seconds(span_s)}: {many}. {mend}")
    gaps = np.diff(times, prepend=0)
    place = int(gaps.argmax())
    gap_s = float(gaps[place]) / NS_PER_S
    if recorded and gap_s >= _LONG_S and gap_s * NS_PER_S >= times[-1] / 2:
        warnings.append(
            f"No request arrives for {_seconds(gap_s)} before request {free[place]}: check its "
            "timestamp; the makespan counts from 0."
        )
    return [*warnings, *(_coarse(times) if recorded else ())]


def is_coarse(jobs: Jobs) -> bool:
    """Whether several requests arrive at each instant, on average."""
    return any(_coarse(jobs.arrivals_ns[jobs.afters < 0]))


def _coarse(times: Pages) -> Iterator[str]:
    instants, counts = np.unique(times, return_counts=True)
    if len(instants) < 2 or len(times) < _CROWD * len(instants):
        return
    apart_s = float(np.median(np.diff(instants))) / NS_PER_S
    yield (
        f"The clock of the trace is coarse: {len(times):,} requests arrive at {len(instants):,} "
        f"instants, mostly {_seconds(apart_s)} apart and up to {counts.max():,} at once. Times to "
        "first token contain the queue of each batch; --arrivals spread lets its requests arrive "
        "evenly."
    )


def _seconds(time_s: float) -> str:
    return f"{time_s:,.1f} s" if time_s < _LONG_S else f"{time_s / 3600:,.1f} h"
