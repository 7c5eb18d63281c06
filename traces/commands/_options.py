"""Options that several commands have: the trace that they read, the NUMA node of host memory."""

from __future__ import annotations

import argparse

from ..formats._open import FORMATS, described
from ..terminal import options as read


def add_trace(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """The trace, its format (None: detected) and how much of it is read. optional: whether the
    command can do without one."""
    add = parser.add_argument
    add(
        "trace",
        nargs="?" if optional else None,
        type=read.name,
        metavar="TRACE",
        help="JSON lines, plain or gzip; - reads stdin",
    )
    add(
        "--format",
        type=read.entry(FORMATS, "auto"),
        help=f"{described()} (default: auto)",
    )
    add(
        "--limit",
        type=read.at_least(1),
        default=0,
        metavar="N",
        help="only the first N requests (default: all)",
    )


def add_numa_node(parser: argparse.ArgumentParser, default: str) -> None:
    """default: what happens without the option, in words."""
    parser.add_argument(
        "--numa-node",
        type=read.at_least(0),
        default=None,
        metavar="N",
        help=f"NUMA node of host memory (default: {default})",
    )
