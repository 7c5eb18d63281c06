"""What a format yields: one row a request, and what the whole file is like.

A format in traces/formats is a module with SUMMARY, SAMPLE, `recognises(head)` and
`rows(files, about)`. `rows` is a generator; it fills `about` before the first row that depends on
it. Reading the rows into columns (_blocks), and writing them as a native trace (_writing), is the
same for all formats. The native format has tokens instead of blocks and a reader of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hicache.core.errors import CallerError

from ._log_options import LogOptions
from .base import MAX_BLOCK_TOKENS, Lines


class Row(NamedTuple):
    """One request.

    arrival_ns  time of arrival; with `after` >= 0, the delay after the end of that request.
    blocks      ids of the blocks of the prompt (and output, if `about.knows_output`), the first
                ones or all of them. The last one may be partial if `about.partial`.
    scope       ids are the same block only within one scope: a file, a namespace.
    after       the number of the request that must end first, or -1.
    session     the name of its session; None for that of the request before, or one of its own.
    start_ns    when it was recorded to start, if `about.sorts`.
    """

    arrival_ns: int
    input_length: int
    output_length: int
    blocks: Sequence[int] = ()
    scope: str = ""
    after: int = -1
    session: str | None = None
    priority: int = 0
    tenant: str = ""
    start_ns: int = 0


@dataclass
class About:
    """The options of the reader, and what a format says of its file.

    wanted_block_size, tokenizer: as given; 0 and None if not. block_size: tokens of a block, known
    at the last row at the latest. identity: False if there are lengths only. partial: whether a
    row may end with the id of a block that is not full. sorts: whether rows have to be put in the
    order of their starts. notes: how often something was left out or assumed, by its sentence.
    log: what the user says of a log. assumed: of a log, what had to be, in sentences.
    settle: is called after the last row; raises CallerError for what the whole file does not allow.
    """

    wanted_block_size: int = 0
    tokenizer: str | None = None
    block_size: int = 0
    identity: bool = True
    knows_output: bool = False
    partial: bool = True
    sorts: bool = False
    notes: Counter[str] = field(default_factory=Counter)
    lines: Lines | None = None
    settle: Callable[[], None] = lambda: None
    log: LogOptions = field(default_factory=LogOptions)
    assumed: list[str] = field(default_factory=list)

    def each(self, files: Iterable[Lines]) -> Iterator[Lines]:
        """The files one after another; `lines` is the current one."""
        for self.lines in files:
            yield self.lines

    def fixed(self, lines: Lines, block_size: int) -> None:
        """The file says its block size. Raises CallerError if the option says another one."""
        if not 1 <= block_size <= MAX_BLOCK_TOKENS:
            lines.wrong(
                f"blocks of 1 to {MAX_BLOCK_TOKENS} tokens", str(block_size), "correct the file"
            )
        if self.wanted_block_size not in (0, block_size):
            lines.wrong(
                f"blocks of {self.wanted_block_size} tokens (--block-size)",
                f"a file with blocks of {block_size}",
                "leave the option out",
            )
        if self.block_size not in (0, block_size):
            lines.wrong(
                f"blocks of {self.block_size} tokens, as before",
                f"blocks of {block_size}",
                "split the trace",
            )
        self.block_size = block_size

    def lengths_only(self) -> None:
        """The file says nothing of its prompts but their lengths. Raises CallerError if the option
        gives their blocks a size."""
        self.identity = False
        assert self.lines is not None
        self.no_blocks(self.lines)

    def no_blocks(self, lines: Lines) -> None:
        """Raises CallerError if the option gives a size to blocks that the file has not."""
        if self.wanted_block_size:
            raise CallerError(
                f"--block-size: expected a trace with ids of blocks, found none in {lines.path}; "
                "leave it out"
            )

    def sentences(self) -> tuple[str, ...]:
        """The notes, with their numbers in front, and what was assumed."""
        return (*(f"{count:,} {text}" for text, count in self.notes.items()), *self.assumed)
