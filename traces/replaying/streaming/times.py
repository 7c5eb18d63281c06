"""The times of a timed replay whose requests are not held: a sketch of each, and sums.

It is told the result of each request when it has ended. What the times mean: see `run.Latency`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sim.engine.sequence import RequestResult, Sequence
from sim.engine.token_gaps import TokenGaps

from ..run import Latency
from .parts import Offered
from .sketch import Sketch

_FOLD_EVERY = 4096  # requests
_NONE = np.zeros(0, dtype=np.int64)


class Times:
    """See the module. sketches: by name. preempted: how often requests were."""

    def __init__(self) -> None:
        names = ("ttft", "queue", "load", "compute", "tpot", "itl")
        self.sketches = {name: Sketch() for name in names}
        self.offered = Offered()
        self.preempted = 0
        self._generated = 0

    @property
    def exact(self) -> bool:
        """Whether every percentile is one of the times."""
        return all(sketch.is_exact for sketch in self.sketches.values())

    def ended(self, one: RequestResult) -> None:
        ttft_ns, queue_ns = one.first_token_ns - one.arrival_ns, one.queue_ns
        sketches, offered = self.sketches, self.offered
        sketches["ttft"].add(ttft_ns)
        sketches["queue"].add(queue_ns)
        sketches["load"].add(one.load_ns)
        sketches["compute"].add(one.compute_ns)
        if one.output_length > 1:
            decode_ns = one.finish_ns - one.first_token_ns
            sketches["tpot"].add(decode_ns // (one.output_length - 1))
        if not offered.requests or one.arrival_ns < offered.first_arrival_ns:
            offered.first_arrival_ns = one.arrival_ns
        offered.requests += 1
        offered.ttft_ns += ttft_ns
        offered.queue_ns += queue_ns
        offered.compute_ns += one.compute_ns
        offered.waiting += 11 * queue_ns > 10 * ttft_ns
        offered.running_ns += one.finish_ns - one.arrival_ns - queue_ns
        offered.last_arrival_ns = max(offered.last_arrival_ns, one.arrival_ns)
        offered.last_first_token_ns = max(offered.last_first_token_ns, one.first_token_ns)
        self.preempted += one.retractions
        self._generated += one.output_length

    def fold(self, gaps: TokenGaps, sequences: Iterable[Sequence]) -> None:
        """Takes the times between tokens out of the engine."""
        self.sketches["itl"].add_all(*gaps.fold(sequences))

    def due(self) -> bool:
        """Whether so many requests have ended that the engine should be relieved."""
        return not self.offered.requests % _FOLD_EVERY

    def latency(self, makespan_ns: int) -> Latency:
        spreads = {name: sketch.spread() for name, sketch in self.sketches.items()}
        nothing = (_NONE, _NONE, _NONE, _NONE, _NONE)
        return Latency(*nothing, makespan_ns, self._generated, (), (), spreads, self.offered)
