"""A long trace in Mooncake's format: copies of a trace, one an hour later than the other.

    python -m tests.bench.copied_trace TRACE 10000000 > trace10m.jsonl

Each copy has block ids of its own, so that nothing is shared between two hours. Ids count on in
the order of first use, as in Mooncake's traces. The last copy ends at the count of requests.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

_HOUR_MS = 3_600_000


def lines(trace: Path, requests: int) -> Iterator[str]:
    """Raises ValueError if the trace lasts longer than an hour."""
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    if max(row["timestamp"] for row in rows) >= _HOUR_MS:
        raise ValueError(f"{trace}: expected at most an hour")
    ids = 1 + max(block for row in rows for block in row["hash_ids"])
    copies = ((copy, row) for copy in itertools.count() for row in rows)
    for copy, row in itertools.islice(copies, requests):
        yield (
            f'{{"timestamp": {row["timestamp"] + copy * _HOUR_MS}, '
            f'"input_length": {row["input_length"]}, "output_length": {row["output_length"]}, '
            f'"hash_ids": {[block + copy * ids for block in row["hash_ids"]]}}}\n'
        )


if __name__ == "__main__":
    sys.stdout.writelines(lines(Path(sys.argv[1]), int(sys.argv[2])))
