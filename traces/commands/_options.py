"""Options that several commands have: a trace and its pages, where points are replayed, and those
of a replay whose host memory or grid the command chooses."""

from collections.abc import Iterable
from dataclasses import dataclass

from hicache.core.errors import CallerError

from .. import executors
from ..formats.base import Trace
from ..replaying.options import OPTIONS, OUTPUTS, ReplayOptions, TraceOptions
from ..terminal.options import TOKENS, Option, OptionRecord, between, choice, library, option

_PAGE_SIZE = 64


@dataclass(frozen=True)
class PagedTraceOptions(TraceOptions):
    """A trace that is cut into pages. page_size: 0 if not given."""

    page_size: int = option(
        "tokens per page (default: the trace's block size, or 64)", *TOKENS, default=0, common=True
    )

    def page_size_of(self, trace: Trace) -> int:
        return self.page_size or trace.block_size or _PAGE_SIZE


@dataclass(frozen=True)
class WorkerOptions(OptionRecord):
    """How points are replayed: in how many processes, and where. jobs: None for one process for
    each core."""

    jobs: int | None = option(
        "points at once, each in a process (default: one for each core)", between(1, 1024), "N"
    )
    executor: str = option(
        ", ".join(executors.EXECUTORS), choice([*executors.EXECUTORS]), default=executors.LOCAL
    )

    def check(self, replay: ReplayOptions) -> None:
        """Raises CallerError for what workers cannot do."""
        if replay.trace == "-":
            raise CallerError(
                "-: expected a file, which every worker reads, found standard input; write it to a "
                "file"
            )
        if self.executor != executors.LOCAL:
            library(self.executor, self.executor)


def of_replay(without: Iterable[str] = ()) -> list[Option]:
    """The options of a replay that a command with several replays takes."""
    return [option for option in OPTIONS if option.name not in (*OUTPUTS, *without)]
