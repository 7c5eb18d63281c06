"""Options that several commands have: the trace that they read, the NUMA node of host memory, and
where points are replayed."""

from __future__ import annotations

import argparse
from typing import Protocol

from hicache.core import registry
from sim.times.base import DEFAULT as DEFAULT_TIMES

from ..executors import base as executors
from ..formats._open import FORMATS, described, open_trace
from ..formats.base import MAX_BLOCK_TOKENS, Trace
from ..outside.entries import entry
from ..terminal import options as read

_MOST_SIZES = 64


def add_trace(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """The trace, its format (None: detected) and how much of it is read. optional: whether the
    command can do without one."""
    add = parser.add_argument
    add(
        "trace",
        nargs="?" if optional else None,
        type=read.name,
        metavar="TRACE",
        help="a file, plain, gzip or zstd, or a folder of files; - reads stdin",
    )
    add_format(parser)
    add(
        "--limit",
        type=read.at_least(1),
        default=0,
        metavar="N",
        help="only the first N requests (default: all)",
    )


def known_entries(package: str) -> str:
    """The entries of a folder, for a help text."""
    return f"{', '.join(registry.spellings(package))}, or path.py:Name"


def add_times(parser: argparse._ActionsContainer, default: str | None = None) -> None:
    """The time model. default: what the record holds where none is given."""
    parser.add_argument(
        "--times",
        type=entry(registry.TIMES),
        default=default,
        metavar="NAME",
        help=f"time model of forward passes: {known_entries(registry.TIMES)} (default: "
        f"{DEFAULT_TIMES})",
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """How a trace is read, where its file does not say it."""
    add = parser.add_argument
    add(
        "--format",
        type=read.entry(FORMATS, "auto"),
        help=f"{described()} (default: auto, by the first line)",
    )
    add(
        "--block-size",
        type=read.between(1, MAX_BLOCK_TOKENS),
        metavar="TOKENS",
        help="tokens of a block of the trace's ids (default: what the file or its format says)",
    )
    add(
        "--tokenizer",
        type=read.name,
        metavar="FILE",
        help="the tokenizer.json for a trace of text",
    )


class TraceOptions(Protocol):
    """The options of `add_trace`, in the record of a command."""

    @property
    def trace(self) -> str | None: ...

    @property
    def format(self) -> str | None: ...

    @property
    def block_size(self) -> int | None: ...

    @property
    def tokenizer(self) -> str | None: ...

    @property
    def limit(self) -> int: ...


def opened(options: TraceOptions) -> Trace:
    """The trace that the options name."""
    assert options.trace is not None
    return open_trace(
        options.trace,
        options.format or "auto",
        options.limit,
        options.block_size,
        options.tokenizer,
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


def add_workers(parser: argparse.ArgumentParser) -> None:
    """How points are replayed: in how many processes, and where."""
    parser.add_argument(
        "--jobs",
        type=read.between(1, 1024),
        metavar="N",
        help="points at once, each in a process (default: one for each core)",
    )
    parser.add_argument(
        "--executor",
        type=read.entry(executors.EXECUTORS),
        default=executors.LOCAL,
        help=", ".join(registry.names(executors.EXECUTORS)),
    )


def sizes_of(text: str) -> tuple[int, ...]:
    """A list of sizes of memory, ascending, each once."""
    sizes = sorted({read.byte_size(part.strip()) for part in text.split(",")})
    if len(sizes) > _MOST_SIZES:
        raise argparse.ArgumentTypeError(
            f"expected at most {_MOST_SIZES} sizes, found {len(sizes)}"
        )
    return tuple(sizes)
