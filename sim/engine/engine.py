"""The engine: continuous batching with chunked prefill, in virtual time or on a real device.

A step boundary is between two passes of a micro-batch (there is one, without pipeline stages). The
pass that ended is reported first (PrefillDone), and an answer of one token has ended with it. Then,
with the engine's *sequences* (S Req, V Request):

    1. apply the replies of transfers, even without prefills: otherwise backups would keep their
       pages locked. If storage replies during a pass, its replies and backups' are applied at once
    2. end or grow the sequences that are due. Growth asks for pages of a stretch of tokens, then
       for one page, then retracts the sequence that the core names (V preempts)
    3. continue the prefills that have started
    4. admit waiting requests until one is refused, if the reserve (S new_token_ratio) allows it;
       one that is refused with "fetching" is parked, and comes back to the front of the queue
    5. start the queued loads and backups; an action for storage began when the core asked for it
    6. launch the next pass, which waits for its loads by groups of layers

A request takes time in the client, in HTTP and in the tokeniser. With storage the core hears of it
(Arrived) after that time, so that its prefetch begins; without, before it is first matched or
admitted. MatchWanted is for orders and chunks that depend on what is cached. With `lookahead` (S
overlap schedule, V async scheduling) a pass counts as composed while the one before it runs: a
request that comes during a pass joins the one after the next.
"""

from collections.abc import Callable, Mapping

from hicache.core.actions import Prefill, Refused
from hicache.core.types import RequestId

from ..options import EngineOptions
from ..schedulers import Scheduler, make
from ..times.base import step_ns
from ..workload import Job, Workload
from .prefill import Prefills
from .running import RESERVES, Platform, Sequences, growth_tokens
from .sequence import Sequence, TokenGaps


class Engine:
    """Serves one workload. ended: called with each sequence that ended."""

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
        profile = options.profile
        reserve = RESERVES[profile.reserve](profile.reserve_permille)
        stretch = growth_tokens(components, size, options.growth_tokens)  # of one growth
        self._running = Sequences(platform, self._waiting, size, reserve, stretch, ended)
        self._prefills = Prefills(self._running, workload, platform, options)
        self._gaps = self._running.gaps
        self._host_ns = platform.forward.profile.host_ns
        self._profile = profile
        self._new: list[Sequence] = []  # came while a pass ran
        self._next: list[Sequence] = []  # may be taken when the next pass is composed
        self._store = platform.store
        self._released: list[Sequence] = []
        self._busy = False
        self._woken = False
        self._notified = False
        self._launched_ns = 0  # the last pass, and its time without waits
        self._compute_ns = 0
        self._before_last_ns = 0  # of a pass of several decode steps, all but the last

    @property
    def sequences(self) -> Mapping[RequestId, Sequence]:
        """The sequences that have arrived and not ended."""
        return self._running.sequences

    @property
    def gaps(self) -> tuple[TokenGaps, ...]:
        """The times between tokens, of each micro-batch."""
        return tuple(batch.gaps for batch in self._running.batches)

    @property
    def last_refusal(self) -> Refused | None:
        return self._running.last_refusal

    def arrive(self, job: Job) -> None:
        """Adds a request that arrives now."""
        outputs = max(1, job.output_length)
        sequence = Sequence(job, outputs, job.input_length, self._clock.now_ns)
        self._running.sequences[job.index] = sequence
        delay_ns = self._profile.request_token_host_ns * job.input_length
        if delay_ns := delay_ns + self._profile.request_host_ns:
            self._clock.after(delay_ns, lambda: self._received(sequence))
        else:
            self._received(sequence)

    def _received(self, sequence: Sequence) -> None:
        """A request has come from its client."""
        if self._busy and self._profile.lookahead:
            self._new.append(sequence)
        else:
            self._waiting.push(sequence)
        if self._store is not None:
            self._prefills.announce(sequence)  # its prefetch begins now
        self.wake()

    def take_over(self, job: Job, first_token_ns: int) -> None:
        """Adds a request whose prompt was computed elsewhere, where its first token was sampled
        too. Its prompt is brought by the relay."""
        outputs = max(1, job.output_length)
        sequence = Sequence(job, outputs, job.input_length, self._clock.now_ns, incoming=True)
        sequence.first_token_ns = sequence.token_ns = first_token_ns
        self._running.sequences[job.index] = sequence
        self._waiting.push(sequence)
        self.wake()

    def delivered(self, sequence: Sequence, prefill: Prefill) -> None:
        """The relay has filled the pages of a prompt."""
        self._prefills.deliver(sequence, prefill)
        self.wake()

    def release(self, sequence: Sequence) -> None:
        """The relay has read all pages of a request: the next step boundary frees them."""
        self._released.append(sequence)
        self.wake()

    def storage_replied(self) -> None:
        """Storage has replies. They are taken at this instant, also while a pass runs."""
        if not self._notified:
            self._notified = True
            self._clock.after(0, self._take_storage_replies)

    def _take_storage_replies(self) -> None:
        self._notified = False
        self._running.take_storage_replies()
        self.wake()

    def wake(self) -> None:
        """Schedules a step boundary after all events of this instant, unless a pass is running."""
        if not self._busy and not self._woken:
            self._woken = True
            self._clock.after(0, self._look)

    def _look(self) -> None:
        self._woken = False
        if not self._busy:
            self._boundary()

    def _boundary(self) -> None:
        self._take()
        self._compose()

    def _take(self) -> None:
        """What has come since the last step boundary."""
        self._prefills.take_delivered()
        self._running.take_replies()
        self._end_released()
        self._queue_next()

    def _queue_next(self) -> None:
        """A pass is composed: it may have the requests that came before the last one began."""
        for sequence in self._next:
            self._waiting.push(sequence)
        self._next, self._new = self._new, []

    def _compose(self) -> None:
        self._running.finish_ended()
        retractions = self._running.retractions
        self._running.retry_stalled()
        self._running.grow_full()
        self._prefills.schedule(retractions)
        empty = not self._prefills.batch and not len(self._running.decode)
        if empty and (self._next or self._new):
            self._queue_next()  # nothing is ahead of what came last
            self._queue_next()
            self._prefills.schedule(retractions)
        self._controller.start()
        self._launch()

    def _end_released(self) -> None:
        released, self._released = self._released, []
        for sequence in released:
            del self._running.leaving[sequence.job.index]
            self._running.end(sequence)

    def _launch(self) -> None:
        decoding, batch = len(self._running.decode), self._prefills.batch
        self._busy = bool(batch or decoding)
        self._launched_ns = self._clock.now_ns
        if batch:
            alone = bool(decoding) and not self._prefills.with_decoding
            context = 0 if alone else self._running.decode.context
            self._compute_ns = self._forward.launch(
                batch, 0 if alone else decoding, context, lambda: self._pass_ended(int(not alone))
            )
        elif decoding:
            self._compute_ns, steps = self._quiet_run(decoding)
            self._forward.launch_decode(self._compute_ns, lambda: self._pass_ended(steps))

    def _quiet_run(self, decoding: int) -> tuple[int, int]:
        """Returns (duration in ns, number) of the decode steps that can run as one, and notes the
        duration of each but the last.

        A step boundary without admissions or prefills has the same result at every step, until a
        sequence is due or another event of the clock occurs. The run of steps ends at the earlier
        of the two. While an admission waits for what changes with each step, it is one step.
        """
        settled = not (self._prefills.unsettled or self._next or self._new)
        decode = self._running.decode
        limit = decode.quiet_steps() if self._fast_forward and settled else 1
        horizon_ns = self._clock.next_ns()
        if horizon_ns >= 0:
            horizon_ns -= self._clock.now_ns
        context = decode.context
        costs, note = self._costs, self._gaps.steps_ns.append
        added_ns, least_ns = self._host_ns(decoding, 0)
        duration_ns = last_ns = max(step_ns(costs, (), decoding, context) + added_ns, least_ns)
        steps = 1
        while steps < limit and (horizon_ns < 0 or duration_ns < horizon_ns):
            note(last_ns)
            context += decoding
            last_ns = max(step_ns(costs, (), decoding, context) + added_ns, least_ns)
            duration_ns += last_ns
            steps += 1
        self._before_last_ns = duration_ns - last_ns
        return duration_ns, steps

    def _pass_ended(self, steps: int) -> None:
        """A pass of so many decode steps has ended; 0 if decoding waited for it."""
        self._busy = False
        elapsed_ns = self._clock.now_ns - self._launched_ns
        self._running.decoded(steps, elapsed_ns, self._before_last_ns)
        self._before_last_ns = 0
        waited_ns = max(0, elapsed_ns - self._compute_ns)
        self._prefills.ended(self._prefills.batch, elapsed_ns, waited_ns)
        self._boundary()
