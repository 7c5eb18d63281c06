"""The workload of the simulated engine: jobs in order of arrival, and the source of their keys.

Trace formats and generators (in `traces`) implement `Workload`; the engine knows nothing else about
a trace. Keys are made on demand, because the tokens of a whole trace do not fit in memory.
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
    arrival_ns  time of arrival; with `after` >= 0, the delay after the end of that job.
    after       index of the job that must end first (the previous turn of the session), or -1.
    session     index of the first job of its session; -1 for a job without a session.
    priority    higher is admitted earlier and kept longer, by orders and policies that use it.
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
        """Returns the key of the full pages of the job's first `length` tokens, prompt then output.

        If the trace does not identify tokens (the output, in most formats), they differ from those
        of every other job.
        """
