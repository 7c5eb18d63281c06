"""A part of a trace: whole sessions, as a shorter trace of the same load, and how far it errs."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest

from traces.formats import open_trace
from traces.formats.base import groups, sampled

from .rig import HEADER, turns_of, write

Kind = Literal["named", "waits", "prefix", "alone"]


def traffic(path: Path, draw: random.Random, kind: Kind) -> str:
    """Sessions that begin at random; turns come after pauses of 20 s, or wait for the answer."""
    turns: list[tuple[float, int, int, list[object], tuple[str, int]]] = []
    start = 0.0
    for session in range(800 if kind == "alone" else 400):
        start += draw.expovariate(0.5)
        at, history = start, [("system", 1024)]
        for turn in range(1 if kind == "alone" else draw.choice((1, 2, 3, 6))):
            history.append((f"q{session}.{turn}", draw.randrange(200, 8000)))
            answer = (f"a{session}.{turn}", draw.randrange(2, 10))
            turns.append((at, session, turn, [*history], answer))
            history.append(answer)
            at += draw.expovariate(1 / 20)
    records: list[object] = [HEADER]
    last: dict[int, tuple[int, float]] = {}
    for number, (at, session, turn, history, answer) in enumerate(sorted(turns)):
        one: dict[str, Any] = {"input": history, "output": answer, "timestamp": int(1000 * at)}
        if kind == "named":
            one["session"] = f"s{session}"
        if kind == "waits" and turn:
            before, then = last[session]
            one |= {"after": before, "delay": int(1000 * (at - then))}
            del one["timestamp"]
        last[session] = number, at
        records.append(one)
    return str(write(path, *records))


def test_a_sample_has_whole_groups_and_smaller_ones_are_in_it(tmp_path: Path) -> None:
    """Its requests have the pages and the turns of the whole trace."""
    whole = open_trace(turns_of(tmp_path, "--clients", "12", "--rounds", "3"))
    named = groups(whole)
    kept: set[int] = set(named.tolist())
    paged = whole.paged(64)
    number_of = {line: number for number, line in enumerate(whole.line_numbers)}
    for rate in (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4)):
        some = sampled(whole, rate, seed=3)
        assert f"{len(some.jobs)} of {len(whole.jobs)} requests" in some.notes[-1]
        pages, chosen = some.paged(64), set()
        for job, line in zip(some.jobs, some.line_numbers, strict=True):
            same = whole.jobs[number_of[line]]
            chosen.add(int(named[same.index]))
            assert (job.input_length, job.output_length) == (same.input_length, same.output_length)
            assert pages.prompt_key(job) == paged.prompt_key(same)
            if same.after >= 0:
                assert some.line_numbers[job.after] == whole.line_numbers[same.after]
        assert len(some.jobs) == int(np.isin(named, [*chosen]).sum())
        assert chosen < kept
        kept = chosen
    assert kept
    assert sampled(whole, Fraction(1)) is whole


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_sample_is_a_shorter_trace_of_the_same_load(kind: Kind, tmp_path: Path) -> None:
    """At every time: a tenth of the whole takes about as many tokens as a tenth of the part."""
    whole = open_trace(traffic(tmp_path / "trace.jsonl", random.Random(7), kind))
    some = sampled(whole, Fraction(1, 4))
    jobs = some.jobs
    times = jobs.times_ns
    part = jobs.input_tokens / whole.jobs.input_tokens
    free = whole.jobs.afters < 0
    assert times.max() <= part * whole.jobs.arrivals_ns[free].max()
    halves = np.bincount(2 * times // (times.max() + 1), weights=jobs.input_lengths)
    assert 0.75 < halves[0] / halves[1] < 1.33
    assert (np.diff(jobs.arrivals_ns[jobs.afters < 0]) >= 0).all()
    assert (jobs.afters < np.arange(len(jobs))).all()
    firsts = jobs.sessions[jobs.sessions >= 0]
    assert (jobs.sessions[firsts] == firsts).all()
