"""The command as its users run it: fresh processes, wall time, peak memory, exact counts."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from hicache.compiled import finder
from tests.traces.rig import replay_hits
from tests.traces.test_figures import multiturn

from .conftest import Record

TWO_TIERS = (2_818, 22_550)
LRU_HITS = {1_409: 3_320_864, 5_637: 8_928_755, 22_550: 21_501_492, "unbounded": 27_038_068}
TIMED = ("--model", "llama-3.1-8b", "--hardware", "h100", "--device-tokens", "1M")


# A child's peak as its parent is told it counts what the parent held when it forked.
_TOLD = """
import os, sys
from pathlib import Path
from traces.cli import main
code = main(sys.argv[2:])
spent = f"Spent: {sum(os.times()[:2])}\\n"
Path(sys.argv[1]).write_text(Path("/proc/self/status").read_text() + spent)
raise SystemExit(code)
"""


def run(
    tmp_path: Path, trace: Path | None, *options: str, hash_seed: int = 0, build: str = "pure"
) -> dict[str, Any]:
    """One `hicache replay`; its --json document, `wall` seconds of the process and `cpu` seconds,
    and `peak` MiB."""
    out, status = tmp_path / "out.json", tmp_path / "status"
    command = [sys.executable, "-c", _TOLD, str(status), "replay"]
    command += [str(trace)] if trace else []
    command += [*options, "--json", str(out)]
    environment = dict(os.environ, PYTHONHASHSEED=str(hash_seed), HICACHE_BUILD=build)
    start = perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall = perf_counter() - start
    document: dict[str, Any] = json.loads(out.read_text())
    lines = [line.split() for line in status.read_text().splitlines()]
    told = {line[0]: float(line[1]) for line in lines if line[0] in ("VmHWM:", "Spent:")}
    return document | {"wall": wall, "peak": told["VmHWM:"] / 1024, "cpu": told["Spent:"]}


@pytest.mark.parametrize("pages", LRU_HITS)
def test_hits_at_one_capacity(
    benchmark: Any, record: Record, conversation: Path, tmp_path: Path, pages: int | str
) -> None:
    options = ("--mode", "hits", "--page-size", "512", "--device-pages", str(pages))
    result = benchmark.pedantic(
        run, (tmp_path, conversation, *options, "--check", "off"), rounds=1, iterations=1
    )
    hits = result["steady"]["hit_tokens"]["device"]
    assert hits == LRU_HITS[pages]
    record(f"hits mode, {pages} pages of 512: steady hit tokens", f"{hits:,}", "equal")
    record(f"hits mode, {pages} pages: process wall time", f"{result['wall']:.1f} s", "<= 3 s")


def test_hits_on_two_tiers(
    benchmark: Any, record: Record, conversation: Path, tmp_path: Path
) -> None:
    device, host = TWO_TIERS
    options = ("--mode", "hits", "--page-size", "512", "--check", "off")
    sizes = ("--device-pages", str(device), "--host-pages", str(host))
    result = benchmark.pedantic(
        run, (tmp_path, conversation, *options, *sizes), rounds=1, iterations=1
    )
    hits = result["steady"]["hit_tokens"]
    assert (hits["device"], hits["host"]) == (4_362_064, 17_139_428)
    found = f"{hits['device']:,} + {hits['host']:,}"
    record("hits mode, two tiers: steady device + host", found, "4,362,064 + 17,139,428")
    record("hits mode, two tiers: process wall time", f"{result['wall']:.1f} s", "-")


@pytest.mark.parametrize(("check", "limit_s"), [("off", 15), ("every", 60)])
def test_timed(
    benchmark: Any,
    record: Record,
    conversation: Path,
    tmp_path: Path,
    check: str,
    limit_s: int,
) -> None:
    result = benchmark.pedantic(
        run, (tmp_path, conversation, *TIMED, "--check", check), rounds=1, iterations=1
    )
    what = f"timed mode, 12,031 requests, --check {check}"
    record(f"{what}: process wall time", f"{result['wall']:.1f} s", f"<= {limit_s} s")
    record(f"{what}: peak memory", f"{result['peak']:.0f} MiB", "<= 1024 MiB")
    record(f"{what}: digest", result["digest"], "the same for off and every")
    if check == "every":
        operations = result["checks"]["operations"]
        record(f"{what}: violations in {operations:,}", str(result["checks"]["violations"]), "0")


def test_cost_of_checks(benchmark: Any, record: Record, conversation: Path, tmp_path: Path) -> None:
    """Pairs in turn, so that the machine's drift cancels."""

    def pairs() -> list[float]:
        ratios = []
        for _ in range(3):
            spent = {
                check: run(tmp_path, conversation, *TIMED, "--limit", "1500", "--check", check)
                for check in ("off", "every")
            }
            ratios.append(spent["every"]["wall_s"] / spent["off"]["wall_s"])
        return ratios

    ratios = benchmark.pedantic(pairs, rounds=1, iterations=1)
    shown = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
    record("timed, every / off, 3 pairs", f"{shown} (median {statistics.median(ratios):.2f})", "-")


@pytest.mark.skipif(not finder.usable(), reason="no compiled build of this source: make compiled")
@pytest.mark.parametrize(("check", "limit"), [("off", 100_000), ("every", 1500)])
def test_compiled_and_pure(
    benchmark: Any, record: Record, conversation: Path, tmp_path: Path, check: str, limit: int
) -> None:
    """CPU time of whole processes, pairs in turn."""
    options = (*TIMED, "--check", check, "--limit", str(limit))

    def pairs() -> list[float]:
        ratios = []
        for _ in range(3):
            found = {
                build: run(tmp_path, conversation, *options, build=build)
                for build in ("compiled", "pure")
            }
            assert found["compiled"]["digest"] == found["pure"]["digest"]
            ratios.append(found["compiled"]["cpu"] / found["pure"]["cpu"])
        return ratios

    ratios = benchmark.pedantic(pairs, rounds=1, iterations=1)
    shown = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
    record(f"timed, --check {check}, compiled / pure, CPU time, 3 pairs", shown, "<= 0.6")


def test_same_command_twice(benchmark: Any, record: Record, tmp_path: Path) -> None:
    digests = benchmark.pedantic(
        lambda: {run(tmp_path, None, hash_seed=seed)["digest"] for seed in (1, 2)},
        rounds=1,
        iterations=1,
    )
    assert len(digests) == 1
    record("built-in workload twice, other PYTHONHASHSEED", digests.pop(), "the same digest")


def test_half_the_host_bandwidth(
    benchmark: Any, record: Record, conversation: Path, tmp_path: Path
) -> None:
    """One request at a time, so that time changes nothing but time."""
    options = (*TIMED, "--max-running", "1", "--limit", "1000", "--check", "off")

    def both() -> list[dict[str, Any]]:
        return [
            run(tmp_path, conversation, *options, "--host-bandwidth", scale)
            for scale in ("1x", "0.5x")
        ]

    whole, half = benchmark.pedantic(both, rounds=1, iterations=1)
    assert whole["whole"] == half["whole"]
    for name, result in (("1x", whole), ("0.5x", half)):
        hits, ttft = result["whole"]["hit_tokens"], result["latency_s"]["ttft"]
        found = f"{hits['device']:,} + {hits['host']:,}, {ttft['mean']:.3f} s"
        record(f"host link {name}: device + host hit tokens, mean TTFT", found, "hits equal")


def test_multiturn_rates(benchmark: Any, record: Record) -> None:
    """Rates of the multi-turn workload, per round, 10 clients each."""
    account, _, _ = benchmark.pedantic(
        replay_hits, (multiturn(), 200, 1_000), rounds=1, iterations=1
    )
    for turn in range(12):
        hit, total = account.hit_tokens(range(turn * 10, turn * 10 + 10))
        target = max(0, 8 * turn - 1) / (8 * turn + 4)
        record(
            f"multi-turn, hit rate of round {turn + 1:>2}", f"{hit / total:.6f}", f"{target:.6f}"
        )
    record("multi-turn, hit rate of all", f"{account.whole().hit_rate:.6f}", "0.897569")
