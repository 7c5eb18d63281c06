"""The workload of the simulated engine: jobs in order of arrival, and the source of their keys.

Trace formats and generators (in `traces`) implement `Workload`; the engine knows nothing else about
a trace. Keys are made on demand, because the tokens of a whole trace do not fit in memory.
"""

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


POLICIES = ("random", "fifo")
DISTRIBUTIONS = ("poisson", "uniform")


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """gap_ns        mean pause between two requests; 0 sends whatever is ready at once.
    distribution  of the pauses: "poisson" draws exponential ones, "uniform" from 0 to twice the
                  mean.
    max_parallel  most requests in progress; 0 for no limit.
    policy        which ready request is next: "random" or "fifo".
    barrier       whether a turn waits for the end of all earlier turns of all conversations.
    pause_ns      between the end of a round and the next one, with a barrier.
    """

    gap_ns: int = 0
    distribution: str = "poisson"
    max_parallel: int = 0
    policy: str = "fifo"
    barrier: bool = False
    pause_ns: int = 0
    seed: int = 0
