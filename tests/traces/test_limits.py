"""What limits a replay and what to try, each where the figures show it; warnings about times; which
error to expect: that of the nearest of the judged runs. Limits of requests and goodput, against
sums over the lines of `--requests`."""

import json
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from sim.engine.sequence import RequestResult
from traces import error_bars
from traces.cli import parse
from traces.error_bars import ALL, Group, Validated, expected_error, row, together
from traces.replaying import playing
from traces.replaying.account import Latency, kept, spread
from traces.replaying.config import opened, resolve
from traces.replaying.options import ReplayOptions
from traces.replaying.traffic import Slo
from traces.reporting.results import limit_of, load_of, result_of
from traces.reporting.warnings import time_warnings as warnings
from traces.results.record import ErrorOf, ExpectedError, LoadFigures, document

from .rig import jobs_of, mooncake, replayed, write
from .rig import records as records_of

NS = 1_000_000_000
TWO_PAGES = ["--page-size", "512", "--device-pages"]


def replay(tmp_path: Path, records: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    path = write(tmp_path / "trace.jsonl", *records)
    return replayed(tmp_path, str(path), "--check", "off", *options)


def limit(tmp_path: Path, records: list[dict[str, Any]], *options: str) -> tuple[str, list[str]]:
    result = replay(tmp_path, records, *options)["limit"]
    return result["by"], result["try"]


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
    result = replay(tmp_path, records, *words)
    assert (result["limit"]["by"], result["limit"]["try"]) == (by, tries)
    for item in tries:
        again = replay(tmp_path, records, *words[:-2], *item.partition("#")[0].split())
        assert again["total"]["lost_tokens"] == 0
        assert again["evicted_pages"]["host"] == 0


@pytest.mark.parametrize(
    ("text", "tries"),
    [
        ("", ["--tp 2"]),
        ("--kv-dtype fp8 --tp 32", []),
        ("--model llama-3.1-70b --tp 4 --kv-dtype fp8", ["--tp 8"]),
        ("--device-pages 100", ["--device-pages 200"]),
        ("--device-tokens 400K", []),  # twice would not fit the hardware
    ],
)
def test_a_device_pool_that_is_too_small_is_said_with_what_enlarges_it(
    text: str, tries: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "trace.jsonl", *AGAIN)
    _, options = parse(["replay", str(path), "--check", "off", *text.split()])
    assert isinstance(options, ReplayOptions)
    trace = opened(options)[1]
    settings, paged = resolve(options, trace)
    refused = {"no_pages": 1, "writing_back of full": 1, "fetching": 9}
    load = LoadFigures(1.0, 0.95, False, 1.0, 1)
    result = replace(result_of(playing.run(trace, paged, settings)), refused=refused, load=load)
    message = limit_of(options, settings, paged, result)
    assert message.by == "device_memory"
    assert message.why == "95.0 % of TTFT is queueing, 2 x no pages"
    assert list(message.tries) == [*tries, "--host-ratio 0  # the same hits"]
    assert limit_of(options, settings, paged, replace(result, refused={})).by != "device_memory"


@pytest.mark.parametrize(("gap_ms", "overloaded"), [(20, True), (2000, False)])
def test_overload_is_said_with_a_speed_at_which_it_ends(
    gap_ms: int, overloaded: bool, tmp_path: Path
) -> None:
    records = visits(*([8 * n + k for k in range(8)] for n in range(30)), gap_ms=gap_ms)
    result = replay(tmp_path, records)
    assert result["load"]["overloaded"] is overloaded
    assert (result["limit"]["by"] == "load") is overloaded
    if overloaded:
        [text] = result["limit"]["try"]
        speed = text.removeprefix("--speed ")
        assert float(speed) == pytest.approx(0.9 / result["load"]["offered"], abs=0.1)
        again = replay(tmp_path, records, "--speed", speed)
        assert not again["load"]["overloaded"]


def load(*times: tuple[float, float, float]) -> LoadFigures:
    """Of requests from (arrival, time in the queue, time of its passes), in seconds."""
    served = []
    for index, (arrival, queue, compute) in enumerate(times):
        at, first = round(arrival * NS), round((arrival + queue + compute) * NS)
        result = RequestResult(index, 10, 1, 0, 0, 10, at, at, first, first, 0)
        served.append(result._replace(compute_ns=round(compute * NS)))
    jobs = jobs_of(*((round(time[0] * NS), 10, 1) for time in times))
    run: Any = SimpleNamespace(requests=served, makespan_ns=0, gaps=())
    return load_of(jobs, Latency(run))


LONG = [(n, 60.0, 1.0) for n in range(1800)]


@pytest.mark.parametrize(
    ("times", "offered", "overloaded"),
    [
        ([(n, n, 0.0) for n in range(101)], 2, True),
        ([(n, 0.0, 2.0) for n in range(101)], 1.02, False),
        # a long last request alone does not wait in a queue, and few requests cannot tell
        ([*((n, 0.0, 2.0) for n in range(20)), (20, 0.0, 40.0)], 3, False),
        ([(0, 0, 1), (1, 9, 1)], None, False),
        # half an hour of requests that wait a minute each; and where a fifth hardly wait
        (LONG, 1.03, True),
        ([(n, 60.0 if n % 5 else 1.0, 1.0) for n in range(1800)], 1.03, False),
    ],
)
def test_the_offered_load_is_the_time_to_answer_over_the_time_of_the_arrivals(
    times: list[tuple[float, float, float]], offered: float | None, overloaded: bool
) -> None:
    result = load(*times)
    assert result.overloaded is overloaded
    assert result.offered == (offered and pytest.approx(offered, rel=0.02))


@pytest.mark.parametrize(
    ("times_ms", "speed", "text"),
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
    times_ms: list[float], speed: str, text: str | None
) -> None:
    jobs = jobs_of(*((round(time * 1e6), 1000, 1) for time in times_ms))
    result = warnings(jobs, Fraction(speed))
    assert (text in result[0] and len(result) == 1) if text else not result


RUN = Validated("roofline", "h100", "vllm", "llama-3.1-70b", 4, "fp8", "9 to 64")


def group(runs: int, error: float, metric: str = "tpot", **other: Any) -> list[Group]:
    """Judged runs of vLLM, and the group of all engines."""
    errors = {metric: ErrorOf(runs, error, error)}
    engine = other.pop("engine", "vllm")
    group = Group("roofline", "h100", 4, "fp8", "9 to 64", engine, False, (RUN.model,), errors)
    return [replace(group, **other), replace(group, engine=ALL, **other)]


def error_of(groups: list[Group], **other: Any) -> ExpectedError:
    return expected_error(replace(RUN, **other), groups, groups)


def tpot(groups: list[Group], **other: Any) -> ErrorOf:
    result = error_of(groups, **other).tpot
    assert result is not None
    return result


def test_equal_runs_come_first_and_small_groups_last() -> None:
    result = [*group(2, 0.9), *group(3, 0.2, load="65 or more")]
    assert tpot(result).median == 0.2
    assert tpot([*group(3, 0.9), *result[2:]]).median == 0.9
    assert tpot(group(2, 0.9, ranks=1)).differs == ["ranks"]
    busy = [*group(3, 0.2), *group(3, 0.7, saturated=True)]
    assert [tpot(busy, queueing=share).median for share in (0.5, 0.51)] == [0.2, 0.7]


@pytest.mark.parametrize(
    ("other", "missing"),
    [
        ({"hardware": "l40s"}, "the accelerator l40s"),
        ({"times": "mine"}, "times of mine"),
        ({"stages": 2}, "pipeline stages"),
        ({"engine": "plain"}, "the engine plain"),
    ],
)
def test_what_was_never_judged_is_not_validated(other: dict[str, Any], missing: str) -> None:
    result, valid = error_of(group(5, 0.1), **other), error_of(group(5, 0.1))
    assert (result.missing, result.tpot) == (missing, None)
    assert row(result) == f"not validated: no published run had {missing}"
    assert together([valid, None, document(valid)]) == [f"Expected error: {row(valid)}"]
    both = ["Expected error: in the median TPOT 10 %", f"Expected error: {row(result)}"]
    assert together([valid, result]) == both


def test_a_report_has_the_errors_of_the_table_of_its_pair(tmp_path: Path) -> None:
    known, new = map(error_bars.shipped, (error_bars.KNOWN, error_bars.NEW))
    assert all(item.errors for item in [*known, *new])
    assert len({(item.engine, item.hardware, name) for item in known for name in item.models}) > 20
    for model, published in (("llama-3.1-8b", True), ("tiny", False)):
        words = f"--model {model} --hardware h100 --limit 20 --check off"
        result = replayed(tmp_path, *words.split())
        value, error = result["config"], result["expected_error"]
        load = error_bars.load(result["load"]["running_mean"])
        queueing = result["load"]["queueing_share"]
        run = Validated(value["times"], "h100", "vllm", model, 1, "bf16", load, queueing)
        assert error == json.loads(json.dumps(document(expected_error(run, known, new))))
        assert error["published"] == published


PLAIN = ("--times", "pure-roofline", "--engine", "plain")
LIMITS = "ttft=15ms,tpot=7ms,e2e=300ms"


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Any]]:
    """A replay whose requests miss each limit in some places, checked by a second account."""
    path = tmp_path_factory.mktemp("slo")
    records = [
        mooncake([n % 5, 10 + n], 600 + 4 * n, timestamp=30 * n, output_length=1 + n % 60)
        for n in range(90)
    ]
    write(path / "trace.jsonl", *records)
    sizes = ["--device-tokens", "8K", "--check", "every", "--page-size", "128"]
    return records_of(path, str(path / "trace.jsonl"), "--slo", LIMITS, *sizes, *PLAIN)


def test_goodput_is_the_sum_of_the_requests_that_keep_every_limit(
    limited: tuple[dict[str, Any], list[Any]],
) -> None:
    document, lines = limited
    result = document["slo"]
    missed: dict[str, int] = dict.fromkeys(("ttft", "tpot", "e2e"), 0)
    good = []
    for line in lines:
        late = []
        if line["ttft_ns"] > 15e6:
            late.append("ttft")
        if line["tpot_ns"] is not None and line["tpot_ns"] >= 7e6:  # rounded down
            late.append("tpot")
        if line["finish_ns"] - line["arrival_ns"] > 300e6:
            late.append("e2e")
        assert line["slo_missed"] == late
        for name in late:
            missed[name] += 1
        if not late:
            good.append(line)
    assert result["missed"] == {**missed, "itl": None}
    assert min(missed.values()) > 0
    assert 0 < len(good) < len(lines)
    assert result["attained_requests"] == len(good)
    assert result["attained_rate"] == len(good) / len(lines)
    seconds = document["latency_s"]["makespan"]
    assert result["goodput_requests_per_s"] == pytest.approx(len(good) / seconds)
    tokens = sum(line["output_tokens"] for line in good)
    assert result["goodput_tokens_per_s"] == pytest.approx(tokens / seconds)


def test_each_limit_is_kept_up_to_its_value_and_no_further() -> None:
    served: Any = SimpleNamespace(
        ttft_ns=np.array([10, 11, 9, 10, 10]),
        decode_ns=np.array([0, 30, 31, 300, 300]),
        output_tokens=np.array([1, 4, 4, 201, 200]),
        slower=lambda limit: np.array([0, 0, 1, 2, 2]),
    )
    result = kept(Slo(ttft_ns=10, tpot_ns=10, itl_ns=5, e2e_ns=40), served)
    assert {name: item.tolist() for name, item in result.items()} == {
        "ttft": [True, False, True, True, True],
        "tpot": [True, True, False, True, True],
        "itl": [True, True, False, True, False],
        "e2e": [True, False, True, False, False],
    }


def test_percentiles_of_counted_times_are_those_of_the_times() -> None:
    draw = np.random.default_rng(7)
    for size in (1, 2, 7, 400):
        times = draw.integers(1, 10**9, size)
        counts = draw.integers(1, 9, size)
        item, other = spread(times, counts), spread(np.repeat(times, counts))
        assert (item.p50, item.p90, item.p95, item.p99) == (
            other.p50,
            other.p90,
            other.p95,
            other.p99,
        )
        assert item.mean == pytest.approx(other.mean)
    assert spread(np.empty(0), np.empty(0)) == spread(np.empty(0, dtype=np.int64))
