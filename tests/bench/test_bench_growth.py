"""Growth: a long trace that is read once, and a large tree.

Short by default. HICACHE_GROWTH=1 takes the sizes of docs/figures.md, an hour in all: 10 million
requests in `hits` mode, 1 million in timed mode, a tree of 10 million nodes (13 GB).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Record
from .test_bench_replay import run

LONG = bool(os.environ.get("HICACHE_GROWTH"))
TREE = "depth=2,fanout=300,segment-tokens=128,output-tokens=16"
REQUESTS = {"hits": "10M" if LONG else "300K", "timed": "1M" if LONG else "200K"}
NODES = ("100000", "10000000" if LONG else "200000")
ENDS = {"hits": 10 if LONG else 1, "timed": 1}  # parts of 100,000 at each end


@pytest.mark.parametrize("mode", REQUESTS)
def test_a_trace_that_is_read_once(
    benchmark: Any, record: Record, tmp_path: Path, mode: str
) -> None:
    trace = Path(f"generate:random-tree:requests={REQUESTS[mode]},{TREE},rate=100")
    options = ("--mode", mode, "--device-tokens", "400K", "--check", "off")
    found = benchmark.pedantic(run, (tmp_path, trace, *options), rounds=1, iterations=1)
    spent, ends = found["streaming"]["cpu_s"], ENDS[mode]
    first, last = sum(spent[:ends]), sum(spent[-ends:])
    named = f"{REQUESTS[mode]} requests, {mode}"
    record(f"{named}: peak memory", f"{found['peak']:,.0f} MiB", "<= 1,536 MiB")
    each = f"{last / ends * 10:.0f} us, {last / first:.2f} times the first {ends}00,000"
    record(f"{named}: a request of the last {ends}00,000", each, "<= 1.2 times")


@pytest.mark.one_in(16)
def test_a_large_tree(record: Record) -> None:
    command = [sys.executable, "-m", "tests.bench.growing_tree", *NODES]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in told.splitlines():
        nodes, _, rest = line.partition(": ")
        record(f"{nodes.strip()}: {rest.partition(', ')[0]}", rest.partition(", ")[2], "flat")
