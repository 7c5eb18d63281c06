"""What limits a replay and what to try, each where the figures show it; warnings about times."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from sim.engine.sequence import RequestResult
from traces.cli import parse
from traces.replaying import playing
from traces.replaying.config import opened, resolve
from traces.replaying.options import ReplayOptions
from traces.reporting.outputs import time_warnings as warnings
from traces.reporting.results import limit_of, load_of, result_of
from traces.results.record import LoadFigures

from .rig import jobs_of, mooncake, replayed, write

NS = 1_000_000_000
TWO_PAGES = ["--page-size", "512", "--device-pages"]


def replay(tmp_path: Path, records: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    path = write(tmp_path / "trace.jsonl", *records)
    return replayed(tmp_path, str(path), "--check", "off", *options)


def limit(tmp_path: Path, records: list[dict[str, Any]], *options: str) -> tuple[str, list[str]]:
    found = replay(tmp_path, records, *options)["limit"]
    return found["by"], found["try"]


def visits(*prompts: list[int], gap_ms: int = 5000) -> list[dict[str, Any]]:
    return [mooncake(ids, timestamp=gap_ms * at) for at, ids in enumerate(prompts)]


AGAIN = visits([1, 2], [3, 4], [1, 2, 5])
NEW = [[100 + 2 * n, 101 + 2 * n] for n in range(8)]  # so that little of the trace is lost


@pytest.mark.parametrize(
    ("options", "by", "tries"),
    [
        ("3 --host-ratio 0", "cache_memory", ["--host-ratio 7  # holds every page of the trace"]),
        ("3 --host-pages 30", "new_tokens", []),
        ("30 --host-pages 30", "new_tokens", ["--host-ratio 0  # the same hits"]),
    ],
)
def test_what_is_offered_runs_and_does_what_it_says(
    options: str, by: str, tries: list[str], tmp_path: Path
) -> None:
    """A host that holds every page loses nothing; one behind a device that never evicts is idle."""
    records = visits([1, 2], [3, 4], [1, 2, 5], *NEW)
    words = [*TWO_PAGES, *options.split()]
    found = replay(tmp_path, records, *words)
    assert (found["limit"]["by"], found["limit"]["try"]) == (by, tries)
    for one in tries:
        again = replay(tmp_path, records, *words[:-2], *one.partition("#")[0].split())
        assert again["whole"]["lost_tokens"] == 0
        assert again["evicted_pages"]["host"] == 0


def test_a_miss_of_what_is_being_computed_is_no_lack_of_memory(tmp_path: Path) -> None:
    alike = [mooncake([1, 2, 3], timestamp=1) for _ in range(2)]
    assert limit(tmp_path, [mooncake([9]), *alike], *TWO_PAGES, "60") == ("not_ready", [])
    assert limit(tmp_path, [mooncake([9])], *TWO_PAGES, "60") == ("no_repeats", [])


def test_a_missing_window_is_named_and_is_no_eviction(tmp_path: Path) -> None:
    records = visits([1, 2, 3, 4, 5, 6], [1, 2, 9])
    window = ["--components", "full,swa", "--page-size", "512"]
    # nothing was evicted, so no larger pool helps
    assert limit(tmp_path, records, *window, "--device-pages", "60") == ("swa", [])


@pytest.mark.parametrize(
    ("given", "tries"),
    [
        ("", ["--tp 2"]),
        ("--kv-dtype fp8 --tp 32", []),
        ("--model llama-3.1-70b --tp 4 --kv-dtype fp8", ["--tp 8"]),
        ("--device-pages 100", ["--device-pages 200"]),
        ("--device-tokens 400K", []),  # twice would not fit the hardware
    ],
)
def test_a_device_pool_that_is_too_small_is_said_with_what_enlarges_it(
    given: str, tries: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "trace.jsonl", *AGAIN)
    _, options = parse(["replay", str(path), "--check", "off", *given.split()])
    assert isinstance(options, ReplayOptions)
    trace = opened(options)[1]
    settings, paged = resolve(options, trace)
    run = playing.run(trace, paged, settings)
    refused = {"no_pages": 1, "writing_back of full": 1, "fetching": 9}
    load = LoadFigures(1.0, 0.95, False, 1.0, 1)
    found = replace(result_of(trace, settings, run), refused=refused, load=load)
    told = limit_of(options, settings, paged, found)
    assert told.by == "device_memory"
    assert told.why == "95.0 % of TTFT is queueing, 2 x no pages"
    assert list(told.tries) == [*tries, "--host-ratio 0  # the same hits"]
    assert limit_of(options, settings, paged, replace(found, refused={})).by != "device_memory"


@pytest.mark.parametrize(("gap_ms", "overloaded"), [(20, True), (2000, False)])
def test_overload_is_said_with_a_speed_at_which_it_ends(
    gap_ms: int, overloaded: bool, tmp_path: Path
) -> None:
    records = visits(*([8 * n + k for k in range(8)] for n in range(30)), gap_ms=gap_ms)
    found = replay(tmp_path, records)
    assert found["load"]["overloaded"] is overloaded
    assert (found["limit"]["by"] == "load") is overloaded
    if overloaded:
        [text] = found["limit"]["try"]
        speed = text.removeprefix("--speed ")
        assert float(speed) == pytest.approx(0.9 / found["load"]["offered"], abs=0.1)
        again = replay(tmp_path, records, "--speed", speed)
        assert not again["load"]["overloaded"]


def load(*times: tuple[float, float, float]) -> LoadFigures:
    """Of requests from (arrival, time in the queue, time of its passes), in seconds."""
    served = []
    for index, (arrival, queue, compute) in enumerate(times):
        at, first = round(arrival * NS), round((arrival + queue + compute) * NS)
        result = RequestResult(index, 10, 1, 0, 0, 10, at, at, first, first, 0)
        served.append(result._replace(compute_ns=round(compute * NS)))
    jobs = jobs_of(*((round(one[0] * NS), 10, 1) for one in times))
    return load_of(jobs, SimpleNamespace(requests=served, makespan_ns=0))  # type: ignore[arg-type]


def test_the_offered_load_is_the_time_to_answer_over_the_time_of_the_arrivals() -> None:
    twice = load(*((n, n, 0.0) for n in range(101)))
    assert twice.offered == pytest.approx(2)
    assert twice.overloaded
    fine = load(*((n, 0.0, 2.0) for n in range(101)))
    assert fine.offered == pytest.approx(1.02)
    assert not fine.overloaded
    burst = load(*((n, 3.0, 1.0) for n in range(101)))
    assert burst.queueing_share == pytest.approx(0.75)
    assert not burst.overloaded
    # a long last request alone is no overload: it does not wait in a queue
    assert not load(*((n, 0.0, 2.0) for n in range(20)), (20, 0.0, 40.0)).overloaded
    # nor can a handful of requests tell
    assert load((0, 0, 1), (1, 9, 1)).offered is None
    # half an hour of requests that wait a minute each, for passes of a second
    assert load(*((n, 60.0, 1.0) for n in range(1800))).overloaded
    calm = ((n, 60.0 if n % 5 else 1.0, 1.0) for n in range(1800))  # a fifth hardly wait
    assert not load(*calm).overloaded


@pytest.mark.parametrize(
    ("times_ms", "speed", "said"),
    [
        ([300 * n for n in range(100)], "1", None),
        ([0, 0, 0], "1", None),  # too few to tell
        ([0.3 * n for n in range(100)], "1", "3.4 million input tokens a second"),
        ([0.3 * n for n in range(100)], "0.001", None),
        ([7] * 20, "1", "All 20 requests begin at the same time"),
        ([*range(0, 10_000, 1000), 18_000_000], "1", "arrives for 5.0 h before request 10: check"),
        ([1.7e12 + 300 * n for n in range(20)], "1", "arrives for 472,222.2 h before request 0"),
    ],
)
def test_times_that_look_wrong_are_warned_about(
    times_ms: list[float], speed: str, said: str | None
) -> None:
    jobs = jobs_of(*((round(time * 1e6), 1000, 1) for time in times_ms))
    found = warnings(jobs, Fraction(speed))
    assert (said in found[0] and len(found) == 1) if said else not found
