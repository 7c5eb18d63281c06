"""How the client of a benchmark sends its requests: options that a trace can carry.

Does not send anything (see sender), and imports nothing of the simulation, so that reading a trace
does not either.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import CallerError

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

    def __post_init__(self) -> None:
        for name, known in (("distribution", DISTRIBUTIONS), ("policy", POLICIES)):
            if getattr(self, name) not in known:
                raise CallerError(
                    f"{name}: expected one of {', '.join(known)}, found {getattr(self, name)!r}"
                )
