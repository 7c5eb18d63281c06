"""The options that say which trace is read and how, of every command that reads one."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ...formats._open import FORMATS, bytes_of, open_trace
from ...formats._rows import GROWTHS, SHARINGS, LogOptions, parse_columns
from ...formats.base import MAX_BLOCK_TOKENS, Trace
from ...terminal.options import (
    COUNT,
    FILE,
    OptionRecord,
    at_least,
    between,
    choice,
    entry,
    name,
)
from ...terminal.progress import megabytes
from ...terminal.rows import option
from .needs import Need

TRACE_HELP = "a file, plain, gzip or zstd, or a folder of files; - reads stdin"


def _columns(text: str) -> str:
    try:
        parse_columns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


@dataclass(frozen=True)
class FormatOptions(OptionRecord):
    """How a trace is read, where its file does not say it."""

    HEADING = "how the trace is read"

    format: str | None = option(
        "format of the trace; `hicache convert --formats` lists them (default: auto)",
        entry(FORMATS, "auto"),
        "NAME",
        one_value=True,
        needs=(Need.TRACE,),
    )
    block_size: int | None = option(
        "tokens of a block of the trace's ids (default: what the file or its format says)",
        between(1, MAX_BLOCK_TOKENS),
        "TOKENS",
        one_value=True,
        needs=(Need.TRACE,),
    )
    tokenizer: str | None = option(
        "the tokenizer.json for a trace of text",
        *FILE,
        one_value=True,
        needs=(Need.TRACE,),
        file=str,
    )
    columns: str | None = option(
        "the trace is a log of your own (CSV, JSON, Parquet); its columns, or expressions over "
        "them, are such as time=ts,input='new + cached',output=usage.out,session=chat,turn=n; a "
        "unit may follow the time: time=ts:ms",
        _columns,
        "ROLE=NAME,...",
        one_value=True,
        commas=True,
        needs=(Need.TRACE,),
    )
    rows: str | None = option(
        "of a log that is one JSON document: where its list of rows is, such as data.requests",
        name,
        "PATH",
        one_value=True,
        needs=(Need.TRACE,),
    )
    shared_prefix: int | None = option(
        "of a log: all prompts begin with the same TOKENS, such as a system prompt (default: 0)",
        at_least(0),
        "TOKENS",
        one_value=True,
        needs=(Need.TRACE,),
    )
    growth: str | None = option(
        "of a log with sessions: append: a prompt begins with the prompt and answer before, where "
        "its length allows; replace: its history is rewritten, so nothing is repeated (default: "
        "append)",
        choice(GROWTHS),
        "HOW",
        one_value=True,
        needs=(Need.TRACE,),
    )
    sharing: str | None = option(
        "of a log, instead of --growth: none: no two prompts begin alike, whatever --shared-prefix "
        "says; most: each begins with as much of its session as the lengths allow, without "
        "sessions of any prompt; the two bound what was assumed",
        choice(SHARINGS),
        "HOW",
        one_value=True,
        needs=(Need.TRACE,),
    )

    @property
    def log(self) -> LogOptions:
        """What is said of a log."""
        return LogOptions(self.columns, self.shared_prefix, self.growth, self.sharing, self.rows)

    def read_from(self, path: str, limit: int) -> Trace:
        """The trace there, read as these options say. Shows how much of it was read."""
        how = self.format or "auto", limit, self.block_size, self.tokenizer, self.log
        with megabytes("read", bytes_of(path)) as shown:
            return open_trace(path, *how, shown)


@dataclass(frozen=True)
class LimitOptions(FormatOptions):
    """limit: requests, 0 for all."""

    HEADING = FormatOptions.HEADING

    limit: int = option(
        "only the first N requests (default: all)", *COUNT, default=0, common=True, one_value=True
    )


@dataclass(frozen=True)
class TraceOptions(LimitOptions):
    """The trace, its format and how much of it is read."""

    HEADING = FormatOptions.HEADING

    trace: str = option(TRACE_HELP, name, "TRACE", positional=True, common=True, file=str)

    def opened(self) -> Trace:
        """The trace that the options name."""
        return self.read_from(self.trace, self.limit)
