"""Limits of requests and goodput, against sums over the lines of `--requests`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from traces.cli import main
from traces.replaying.load import Served, Slo, kept
from traces.replaying.playing import spread

from .rig import mooncake, write

PLAIN = ("--times", "pure-roofline", "--engine", "plain")
LIMITS = "ttft=15ms,tpot=7ms,e2e=300ms"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Any]]:
    """A replay whose requests miss each limit in some places, checked by a second account."""
    path = tmp_path_factory.mktemp("slo")
    records = [
        mooncake([n % 5, 10 + n], 600 + 4 * n, timestamp=30 * n, output_length=1 + n % 60)
        for n in range(90)
    ]
    write(path / "trace.jsonl", *records)
    files = ["--json", str(path / "all.json"), "--requests", str(path / "each.jsonl")]
    sizes = ["--device-tokens", "8K", "--check", "every", "--page-size", "128"]
    assert main(["replay", str(path / "trace.jsonl"), "--slo", LIMITS, *sizes, *PLAIN, *files]) == 0
    lines = [json.loads(line) for line in (path / "each.jsonl").read_text().splitlines()]
    return json.loads((path / "all.json").read_text()), lines


def test_goodput_is_the_sum_of_the_requests_that_keep_every_limit(
    replayed: tuple[dict[str, Any], list[Any]],
) -> None:
    document, lines = replayed
    found = document["slo"]
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
    assert found["missed"] == {**missed, "itl": None}
    assert min(missed.values()) > 0
    assert 0 < len(good) < len(lines)
    assert found["attained_requests"] == len(good)
    assert found["attained_rate"] == len(good) / len(lines)
    seconds = document["latency_s"]["makespan"]
    assert found["goodput_requests_per_s"] == pytest.approx(len(good) / seconds)
    tokens = sum(line["output_tokens"] for line in good)
    assert found["goodput_tokens_per_s"] == pytest.approx(tokens / seconds)


def test_each_limit_is_kept_up_to_its_value_and_no_further() -> None:
    served = Served(
        ttft_ns=np.array([10, 11, 9, 10, 10]),
        decode_ns=np.array([0, 30, 31, 300, 300]),
        output_tokens=np.array([1, 4, 4, 201, 200]),
        slower=lambda limit: np.array([0, 0, 1, 2, 2]),
    )
    found = kept(Slo(ttft_ns=10, tpot_ns=10, itl_ns=5, e2e_ns=40), served)
    assert {name: one.tolist() for name, one in found.items()} == {
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
        one, other = spread(times, counts), spread(np.repeat(times, counts))
        assert (one.p50, one.p90, one.p95, one.p99) == (other.p50, other.p90, other.p95, other.p99)
        assert one.mean == pytest.approx(other.mean)
    assert spread(np.empty(0), np.empty(0)) == spread(np.empty(0, dtype=np.int64))
