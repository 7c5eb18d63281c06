"""`hicache fidelity`: predicted times beside measurements that others published.

Does not read measurements (see fidelity/rows) or divide them (see fidelity/split).
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..fidelity.rows import read as read_rows
from ..fidelity.split import HALVES, half
from ..terminal import options as read
from ..terminal.options import OptionRecord

SUMMARY = "predicted times beside published measurements: signed errors, row by row"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    data: str


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--data",
        type=read.name,
        metavar="FOLDER",
        default="../shared/published",
        help="the measurements: a folder with measurements.jsonl, or such a file",
    )


def run(options: Options, command: str) -> int:
    rows = read_rows(Path(options.data))
    counts = Counter(half(row) for row in rows)
    print("; ".join(f"{counts[name]} rows to {name}" for name in HALVES))
    return 0
