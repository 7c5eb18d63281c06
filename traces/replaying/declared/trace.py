"""The options that say which trace is read and how, of every command that reads one."""

from __future__ import annotations

from dataclasses import dataclass

from ...formats._open import FORMATS, open_trace
from ...formats.base import MAX_BLOCK_TOKENS, Trace
from ...terminal.options import COUNT, FILE, OptionRecord, between, entry, name
from ...terminal.rows import option
from .needs import Need

TRACE_HELP = "a file, plain, gzip or zstd, or a folder of files; - reads stdin"


@dataclass(frozen=True)
class FormatOptions(OptionRecord):
    """How a trace is read, where its file does not say it."""

    HEADING = "how the trace is read"

    format: str | None = option(
        "format of the trace, a name of `hicache formats` (default: auto, by the first line)",
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
        how = self.format or "auto", self.limit, self.block_size, self.tokenizer
        return open_trace(self.trace, *how)
