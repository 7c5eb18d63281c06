"""A trace that is read once: the figures of one that is held, in memory that does not grow."""

from __future__ import annotations

import gc
import itertools
import json
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache.core.errors import CallerError
from hicache.core.radix import lru
from sim.device import simulated
from tests.traces import rig
from traces import cli
from traces.expected import table
from traces.formats import _streamed
from traces.formats._streamed import Ceiling, HashedStreams, Held
from traces.formats.native import Request
from traces.replaying.options import ReplayOptions
from traces.replaying.run import spread
from traces.replaying.settings import resolve
from traces.replaying.streaming import opening, parts, sketch, sums
from traces.replaying.streaming import run as streaming
from traces.replaying.streaming.times import Times

from .rig import Capsys, Patch

TREE = "depth=3,fanout=20,segment-tokens=128,output-tokens=32,rate=40,follow-percent=20"
SMALL = ("--model", "tiny", "--device-tokens", "4K", "--page-size", "16", "--check", "off")
NOT_HELD = {"command", "turns", "turns_from", "streaming", "wall_s"}
NOT_STREAMED = {"line", "hit_ended_by", "evicted_for_request", "evicted_at_ns"}


def _options(*words: str) -> ReplayOptions:
    found = cli.parse(["replay", *words])[1]
    assert isinstance(found, ReplayOptions)
    return found


def replayed(folder: Path, *words: str) -> dict[str, Any]:
    """The document of a replay."""
    out = folder / "out.json"
    assert cli.main(["replay", *words, *SMALL, "--json", str(out)]) in (0, 130)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def generated(folder: Path, name: str, options: str) -> str:
    """The same requests as a file."""
    path = str(folder / f"{name}.jsonl")
    words = [f"--{option}" for option in options.split(",")]
    assert cli.main(["generate", name, *words, "-o", path]) == 0
    return path


@pytest.mark.one_in(64)
@pytest.mark.parametrize("mode", ["hits", "timed"])
@pytest.mark.parametrize("host", ["0", "2"])
def test_the_figures_are_those_of_a_trace_that_is_held(
    tmp_path: Path, mode: str, host: str
) -> None:
    options = f"requests=300,{TREE}"
    path = generated(tmp_path, "random-tree", options)
    words = ("--mode", mode, "--host-ratio", host)
    held = replayed(tmp_path, path, *words)
    from_file = replayed(tmp_path, path, "--stream", *words)
    made = replayed(tmp_path, f"generate:random-tree:{options}", *words)
    assert made["streaming"]["ceiling_exact"]
    assert made["streaming"]["percentiles_exact"]
    assert held["evicted_pages"]["device"] > 100
    for found in (from_file, made):
        found["trace"]["path"] = path
        told = [one.split(", which saved")[0].rstrip(".") for one in held["conclusions"]]
        assert [one.rstrip(".") for one in found.pop("conclusions")] == told
        assert found.keys() - NOT_HELD == held.keys() - NOT_HELD - {"conclusions"}
        for key in found.keys() - NOT_HELD - {"latency_s"}:
            assert found[key] == held[key], key
        for name, times in held.get("latency_s", {}).items():
            assert found["latency_s"][name] == pytest.approx(times, rel=1e-12), name


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", ["multiturn", "shared-prefix"])
def test_requests_that_follow_others_are_read_once_in_hits_mode(tmp_path: Path, name: str) -> None:
    lengths = "system-tokens=90,output-tokens=40"
    options = {
        "multiturn": f"clients=6,rounds=5,input-tokens=90,{lengths}",
        "shared-prefix": f"groups=9,prompts=4,question-tokens=50,{lengths}",
    }[name]
    held = replayed(tmp_path, generated(tmp_path, name, options), "--mode", "hits")
    made = replayed(tmp_path, f"generate:{name}:{options}", "--mode", "hits")
    for key in ("whole", "steady", "digest", "transfers", "evicted_pages"):
        assert made[key] == held[key], key


@pytest.mark.one_in(64)
@pytest.mark.parametrize("mode", ["hits", "timed"])
def test_records_are_written_while_the_trace_is_read(tmp_path: Path, mode: str) -> None:
    path = generated(tmp_path, "random-tree", f"requests=120,{TREE}")
    records = []
    for words in ((), ("--stream",)):
        out = tmp_path / "requests.jsonl"
        replayed(tmp_path, path, *words, "--mode", mode, "--requests", str(out))
        lines = map(json.loads, out.read_text().splitlines())
        records.append({one["request"]: one for one in lines})
    held, streamed = records
    for one in held.values():
        for key in NOT_STREAMED | {"capped", "lost_to"}:
            one.pop(key, None)
    assert streamed == held


def test_as_many_requests_run_at_once_as_where_they_are_held(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Those that wait do not run. The error to expect depends on it."""
    options = "requests=60,depth=1,fanout=20,segment-tokens=512,output-tokens=8,rate=400"
    path = generated(tmp_path, "random-tree", f"{options},follow-percent=0")
    asked, load = [], table.load
    monkeypatch.setattr(table, "load", lambda at_once: asked.append(at_once) or load(at_once))
    for more in ((), ("--stream",)):
        found = replayed(tmp_path, path, "--host-ratio", "0", *more)
        assert found["expected_error"]["run"]["queueing"] > 0.5
    held, streamed = asked
    assert streamed == pytest.approx(held)


def memory(requests: int, mode: str) -> int:
    """Bytes allocated at most by a replay of so many requests, beside what one of ten takes."""
    given = f"generate:random-tree:requests={requests},depth=1,fanout=20,segment-tokens=64,"
    given += "output-tokens=8,rate=40,follow-percent=0"
    words = [given, "--mode", mode, *SMALL, "--device-tokens", "640", "--host-ratio", "0"]
    options = _options(*words)
    trace = opening.opened(options)
    settings, _ = resolve(options, trace.sample)
    gc.collect()
    tracemalloc.start()
    try:
        result = streaming.run(trace, settings, None, time.perf_counter())
        assert result.account.whole().requests == requests
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.one_in(64)
@pytest.mark.parametrize("mode", ["hits", "timed"])
def test_memory_does_not_grow_with_the_requests(monkeypatch: Patch, mode: str) -> None:
    """1,500 more requests would take 54 kB as columns, and 300 kB as results."""
    monkeypatch.setattr(_streamed, "MOST_SEGMENTS", 32)
    monkeypatch.setattr(_streamed, "_MOST_NAMES", 32)
    monkeypatch.setattr(lru, "LEAST_SWEPT", 32)
    monkeypatch.setattr(sketch, "EXACT", 64)
    monkeypatch.setattr(sums, "MOST", 64)
    monkeypatch.setattr(simulated, "KEPT", 32)
    monkeypatch.setattr("sim.recorder._FLUSH_WORDS", 64)
    monkeypatch.setattr("traces.replaying.streaming.times._FOLD_EVERY", 64)
    due = Times.due

    def collected(self: Times) -> bool:
        """CPython keeps up to 2,000 freed tuples (96 kB) until a full collection."""
        if not self.offered.requests % 16:
            gc.collect()
        return due(self)

    monkeypatch.setattr(Times, "due", collected)
    memory(50, mode)  # what is made once
    few, many = memory(400, mode), memory(1900, mode)
    assert many - few < 40_000, f"{few:,} bytes for 400 requests, {many:,} for 1,900"


def test_groups_are_joined_when_there_are_too_many() -> None:
    draw = np.random.default_rng(3)
    rows = [tuple(draw.integers(1, 500, 3).tolist()) for _ in range(100)]
    empty = np.zeros(0, dtype=np.int64)

    def known(index: int) -> Held:
        hit, computed, _ = rows[index]
        return Held(hit + computed, 1, hit + 7, "", empty, empty)

    exact, joined = sums.Sums(16, known), sums.Sums(16, known, most=8)
    for index, (hit, _, _) in enumerate(rows):
        for account in (exact, joined):
            account.admit(index, hit, 0)
    assert (exact.group, joined.group) == (1, 16)
    whole, other = exact.whole(), joined.whole()
    assert other.hit_rate_mean == pytest.approx(whole.hit_rate_mean, rel=1e-12)
    assert replace(other, hit_rate_mean=whole.hit_rate_mean) == whole
    assert exact.steady().requests == 50
    assert joined.steady().requests == 100 - 64  # from the first group after the middle on
    assert joined.steady().hit_tokens.device == sum(hit for hit, _, _ in rows[64:])


@pytest.mark.parametrize("most", [10_000, 1 << 60])
def test_percentiles_of_many_times_are_off_by_half_a_bucket_at_most(most: int) -> None:
    times = np.random.default_rng(5).integers(0, 9, 5000) ** 12 + np.arange(5000) * 1_000_003
    found = sketch.Sketch(min(most, 1000))
    for one in times[:2500].tolist():
        found.add(one)
    found.add_all(times[2500:], np.ones(2500, dtype=np.int64))
    assert not found.is_exact
    expected = spread(times)
    assert found.spread().mean == pytest.approx(expected.mean, rel=1e-12)
    for name in ("p50", "p90", "p95", "p99"):
        assert getattr(found.spread(), name) == pytest.approx(getattr(expected, name), rel=0.0005)
    kept = sketch.Sketch(6000)
    kept.add_all(times, np.ones(5000, dtype=np.int64))
    assert kept.is_exact
    assert kept.spread().p99 == expected.p99


def test_small_times_have_buckets_of_their_own() -> None:
    found = sketch.Sketch(1)
    for one in (0, 1, 2047):
        found.add(one)
    assert found.spread().p50 == 1e-9
    assert found.spread().p99 == 2047e-9


def test_the_ceiling_says_that_it_forgot() -> None:
    def request(*segments: tuple[int, int]) -> Request:
        return Request([*segments, (99, 2)], "", 0, 1, 2, -1, None, 0, "")

    names = HashedStreams()
    found = Ceiling(names, most=4)
    assert found.seen(request((1, 100), (2, 50))) == 0
    assert found.seen(request((1, 100), (2, 30), (3, 9))) == 130
    assert found.seen(request((1, 60))) == 60
    assert not found.forgot
    for stream in range(10, 30):
        found.seen(request((stream, 5)))
    assert found.forgot
    assert found.seen(request((1, 100), (2, 50))) == 0
    assert found.seen(request((1, 100), (2, 50))._replace(namespace="other")) == 0


@pytest.mark.one_in(16)
def test_an_interrupt_reports_what_was_served(tmp_path: Path, monkeypatch: Patch) -> None:
    counted = itertools.count(1)

    def ended(self: object) -> None:
        if next(counted) % 50 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(parts.Parts, "ended", ended)
    for mode in ("hits", "timed"):
        found = replayed(tmp_path, f"generate:random-tree:requests=300,{TREE}", "--mode", mode)
        assert found["interrupted"]
        assert found["served_requests"] == found["whole"]["requests"] == 50


@pytest.mark.one_in(16)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate:nothing"], "expected one of"),
        (["generate:random-tree:requests"], "expected options such as requests=10M"),
        (["generate:random-tree:seed=1,seed=2"], "expected each option once, found seed twice"),
        (["generate:random-tree:reqests=5"], "unrecognized arguments: --reqests=5"),
        (["generate:random-tree:requests=x"], "expected a number such as 1M"),
        (["generate:bench-multiturn"], "expected requests that arrive at their times"),
        (["generate:multiturn"], "found request 10 that follows another"),
        (["generate:random-tree", "--device-tokens", "64"], "give --device-tokens 2496"),
        (["--stream"], "found no trace"),
        (["-", "--stream"], "found standard input"),
        (["mooncake.jsonl", "--stream"], "expected a native trace of segments, found mooncake"),
        (["generate:random-tree", "--check", "every"], "--check: expected sampled or off"),
        (["generate:random-tree", "--why", "3"], "--why: expected a trace that is held"),
        (["generate:random-tree", "--device-pages", "unbounded"], "found unbounded"),
        (["generate:random-tree", "--model", "gemma-3-27b"], "expected full alone"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rig.write(Path("mooncake.jsonl"), rig.mooncake([1, 2]))
    sizes = () if any("device" in word for word in words) else ("--device-tokens", "20K")
    assert cli.main(["replay", "--model", "tiny", "--page-size", "16", *sizes, *words]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error


def test_a_line_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = rig.write(tmp_path / "t.jsonl", rig.HEADER, rig.native(("a", 40), output=("b", 2)))
    path.write_text(path.read_text() + '{"timestamp": 0, "input": [], "output": ["c", 1]}\n')
    with pytest.raises(CallerError, match=r"t\.jsonl:3: .*input"):
        opening.opened(_options(str(path), "--stream"))


@pytest.mark.parametrize("command", ["size", "sweep"])
@pytest.mark.parametrize("words", [["--stream"], ["generate:random-tree"]])
def test_other_commands_hold_their_trace(command: str, words: list[str], capsys: Capsys) -> None:
    given = ["--host-ratio", "0,1", "--jobs", "1"] if command == "sweep" else ["--slo", "ttft=2s"]
    assert cli.main([command, *words, *given]) == 2
    said = capsys.readouterr().err.strip()
    assert f"{words[0]}: expected a file that is held, found a trace that is read once" in said
    assert "\n" not in said
