"""Growth: a large tree.

Short by default. HICACHE_GROWTH=1 takes the size of docs/figures.md: 10 million nodes (13 GB).
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import Record

NODES = ("100000", "10000000" if os.environ.get("HICACHE_GROWTH") else "200000")


@pytest.mark.one_in(16)
def test_a_large_tree(record: Record) -> None:
    command = [sys.executable, "-m", "tests.bench.growing_tree", *NODES]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in told.splitlines():
        nodes, _, rest = line.partition(": ")
        record(f"{nodes.strip()}: {rest.partition(', ')[0]}", rest.partition(", ")[2], "flat")
