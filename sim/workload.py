"""What the simulated engine serves: jobs in arrival order, and where their keys come from.

Trace formats and generators (in `traces`) implement `Workload`; the engine knows nothing else of
a trace. Keys are made on demand, because a whole trace's tokens do not fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hicache.core.types import Key


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a trace. Lengths in tokens.

    index       position in the trace; also the request id.
    arrival_ns  when it arrives; with `after` >= 0, how long after that job's end instead.
    after       index of the job that must end first (closed loop: the turn before), or -1.
    session     index of the first job of the session that it is of, or -1: a session of its own.
    priority    higher is admitted earlier and kept longer, by orders and policies that ask for it.
    """

    index: int
    arrival_ns: int
    input_length: int
    output_length: int
    after: int = -1
    session: int = -1
    priority: int = 0


class Workload(Protocol):
    """Jobs in order of index, and the keys of their token sequences for one page size."""

    @property
    def page_size(self) -> int: ...

    @property
    def jobs(self) -> Sequence[Job]: ...

    def key(self, job: Job, length: int) -> Key:
        """The whole pages among the job's first `length` tokens, prompt then output.

        Tokens whose identity the trace does not tell (the output, in most formats) never equal
        those of another job.
        """
