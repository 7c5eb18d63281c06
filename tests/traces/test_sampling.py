"""A part of a trace: whole sessions, as a shorter trace of the same load, and how far it errs."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest

from traces.cli import main
from traces.formats import open_trace
from traces.formats.base import groups, sampled

from .rig import HEADER, mooncake, write

Kind = Literal["named", "waits", "prefix", "alone"]


def conversations(path: Path, seed: int = 1, requests: int = 60) -> str:
    """Prompts of a system prompt, a conversation of its own, and a new end."""
    draw = random.Random(seed)
    histories: dict[int, list[int]] = {}
    records, fresh = [], 1
    for number in range(requests):
        history = histories.setdefault(draw.randrange(requests // 4), [0])
        history += range(fresh, fresh + draw.randrange(1, 4))
        fresh = history[-1] + 1
        records.append(mooncake([*history], timestamp=200 * number))
    return str(write(path, *records))


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
    whole = open_trace(conversations(tmp_path / "trace.jsonl"))
    named = groups(whole)
    kept: set[int] = set(named.tolist())
    for rate in (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4)):
        some = sampled(whole, rate, seed=3)
        chains = {some.paged(512).prompt_key(job) for job in some.jobs}
        chosen = {
            int(name)
            for name, job in zip(named, whole.jobs, strict=True)
            if whole.paged(512).prompt_key(job) in chains
        }
        assert len(some.jobs) == int(np.isin(named, [*chosen]).sum())
        assert chosen < kept
        kept = chosen
    assert sampled(whole, Fraction(1)) is whole


def test_a_request_of_a_sample_has_the_pages_and_the_turns_of_the_whole_trace(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "turns.jsonl")
    assert main(["generate", "multiturn", "--clients", "12", "--rounds", "3", "-o", path]) == 0
    whole = open_trace(path)
    some = sampled(whole, Fraction(1, 2))
    assert f"{len(some.jobs)} of {len(whole.jobs)} requests" in some.notes[-1]
    pages, paged = some.paged(64), whole.paged(64)
    assert 0 < len(some.jobs) < len(whole.jobs)
    assert len(some.jobs) % 3 == 0
    number_of = {line: number for number, line in enumerate(whole.line_numbers)}
    for job, line in zip(some.jobs, some.line_numbers, strict=True):
        same = whole.jobs[number_of[line]]
        assert (job.input_length, job.output_length) == (same.input_length, same.output_length)
        assert pages.prompt_key(job) == paged.prompt_key(same)
        if same.after >= 0:
            assert some.line_numbers[job.after] == whole.line_numbers[same.after]


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
