"""The engine: continuous batching with chunked prefill, on virtual time or on a device's.

Lives here: what happens at a step boundary, and in which order, and when the next one is. Must not
live here: what one part of it does (prefill, growth, running), how long a pass takes (forward,
costs), who is next (schedulers), or any decision about pages (the core).

At a boundary no pass is in flight, and in this order: replies of transfers are taken, also when
nothing is prefilled (or backups would hold their pages for ever); sequences that are due end or
grow, which may retract others; the prefills under way go on; waiting requests are admitted; queued
transfers start; the next pass is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hicache.core.actions import Refused
from hicache.core.types import RequestId

from ..options import EngineOptions
from ..schedulers.base import Scheduler, make
from ..workload import Job, Workload
from .growth import Growth
from .prefill import Prefills
from .reuse import growth_tokens
from .running import Platform, Running
from .sequence import Sequence


class Engine:
    """Serves one workload. `ended`: called with each sequence that ended."""

    def __init__(
        self,
        workload: Workload,
        platform: Platform,
        options: EngineOptions,
        ended: Callable[[Sequence], None],
    ) -> None:
        size, components = workload.page_size, platform.driver.core.view.components
        self._clock = platform.clock
        self._controller = platform.controller
        self._forward = platform.forward
        self._costs = platform.costs
        self._fast_forward = options.fast_forward
        self._waiting: Scheduler[Sequence] = make(options.order, options.window)
        self._running = Running(platform, self._waiting, size, ended)
        self._prefills = Prefills(self._running, workload, platform, options)
        stretch = growth_tokens(components, size, options.growth_tokens)
        self._growth = Growth(self._running, platform.forward, stretch)
        self._decode = self._running.decode
        self._busy = False
        self._woken = False

    @property
    def sequences(self) -> Mapping[RequestId, Sequence]:
        """Those that have arrived and not ended."""
        return self._running.sequences

    @property
    def last_refusal(self) -> Refused | None:
        return self._running.last_refusal

    def arrive(self, job: Job) -> None:
        """A request exists from now on."""
        outputs = max(1, job.output_length)
        sequence = Sequence(job, outputs, job.input_length, self._clock.now_ns)
        self._running.sequences[job.index] = sequence
        self._waiting.push(sequence)
        self.wake()

    def wake(self) -> None:
        """Something may have changed: if idle, look again once this instant's news are in."""
        if not self._busy and not self._woken:
            self._woken = True
            self._clock.after(0, self._look)

    def _look(self) -> None:
        self._woken = False
        if not self._busy:
            self._boundary()

    def _boundary(self) -> None:
        self._running.take_replies()
        self._growth.finish_ended()
        self._growth.retry_stalled()
        self._growth.grow_full()
        self._prefills.schedule()
        self._controller.start()
        self._launch()

    def _launch(self) -> None:
        decoding, batch = len(self._decode), self._prefills.batch
        self._busy = bool(batch or decoding)
        if batch:
            self._forward.launch(batch, decoding, self._decode.context, lambda: self._pass_ended(1))
        elif decoding:
            time_ns, steps = self._quiet_run(decoding)
            self._forward.launch_decode(time_ns, lambda: self._pass_ended(steps))

    def _quiet_run(self, decoding: int) -> tuple[int, int]:
        """Duration and number of the decode steps up to the first that anything could change.

        A boundary that admitted nobody and continued nothing would do the same again at the next
        one unless a sequence is due or some event of the world comes first, so both end the run.
        """
        limit = self._decode.quiet_steps() if self._fast_forward else 1
        horizon_ns = self._clock.next_ns()
        if horizon_ns >= 0:
            horizon_ns -= self._clock.now_ns
        context = self._decode.context
        step_ns = self._costs.step_ns
        duration_ns = step_ns((), decoding, context)
        steps = 1
        while steps < limit and (horizon_ns < 0 or duration_ns < horizon_ns):
            context += decoding
            duration_ns += step_ns((), decoding, context)
            steps += 1
        return duration_ns, steps

    def _pass_ended(self, steps: int) -> None:
        self._busy = False
        self._decode.steps += steps
        self._prefills.ended()
        self._boundary()
