"""The command as its users run it: fresh processes, wall time, peak memory, exact counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from hicache.compiled import finder

from .conftest import Record

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
