"""Hit rates over a public trace: LRU over its blocks, in the order of the requests.

Every block of a prompt counts, and a request hits the longest prefix of blocks that is resident.
The trace is looked for beside the measurements. Does not replay times.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from pathlib import Path

from ..figures import HITS, Figure
from ..places import trace_folder
from ..rows import Row

KIND = "prefix-cache hit rate over a public trace"
_FIELDS = ("hit_rate_reproduced", "cache_ratio")


def is_trace(row: Row) -> bool:
    return row.kind == KIND


def found(row: Row) -> Path | None:
    """The file of the row's trace; None where it is not."""
    text = str(row.workload.get("trace", ""))
    name = re.match(r"[\w.-]+\.jsonl", text)
    if not name:
        return None
    folder = trace_folder()
    plain = name[0].replace("_trace.jsonl", ".jsonl")
    for path in (folder / name[0], folder / f"mooncake_{plain}"):
        if path.is_file():
            return path
    return None


def figures(row: Row) -> list[tuple[Figure, float]]:
    """The published hit rate and the one of the trace."""
    path = found(row)
    assert path is not None, "the rules leave out rows without their trace"
    text = str(row.limits.get("capacity_blocks"))
    capacity = int(text) if text.isdigit() else 0
    rate = hit_rate(path, capacity)
    return [
        (Figure(name, HITS, name, "", row.metrics[name], judged=name == _FIELDS[0]), rate)
        for name in _FIELDS
        if name in row.metrics
    ]


def hit_rate(path: Path, capacity: int) -> float:
    """Hit blocks / blocks of a trace with one JSON object a line. capacity: blocks; 0: no limit."""
    kept: OrderedDict[int, None] = OrderedDict()
    hit = total = 0
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            blocks = json.loads(line)["hash_ids"]
            total += len(blocks)
            resident = True
            for block in blocks:
                resident = resident and block in kept
                hit += resident
            for block in blocks:
                kept[block] = None
                kept.move_to_end(block)
            while capacity and len(kept) > capacity:
                kept.popitem(last=False)
    return hit / total if total else 0.0
