"""The prefill chunks of the next pass. Chunks are chosen before a pass decodes: first those of
running prefills, then new admissions."""

from typing import TypeAlias

from hicache.core.actions import Admitted, Matched, Outcome, Prefill
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import AdmitWanted, Arrived, ContinueWanted, MatchWanted, PrefillDone

from ..content import prefix_tags
from ..options import EngineOptions
from ..workload import Workload
from .running import Blocked, Platform, Sequences
from .sequence import UNSET_NS, Sequence, note_reuse

Batch: TypeAlias = list[tuple[Sequence, Prefill]]


class Prefills:
    """batch: the chunks of the next pass, or of the running one. with_decoding: whether a pass with
    chunks decodes too. unsettled: whether an admission waits for something that changes while
    others only decode.

    After a refusal, an admission or a chunk is requested again only when something that the refusal
    depends on has changed (see `Blocked`).
    """

    def __init__(
        self, running: Sequences, workload: Workload, platform: Platform, options: EngineOptions
    ) -> None:
        size = workload.page_size
        if size > options.token_budget:
            raise CallerError(
                f"token_budget: expected at least one page of {size} tokens, found "
                f"{options.token_budget}"
            )
        self.batch: Batch = []
        self._running = running
        self._workload = workload
        self._page_size = size
        self._options = options
        self._clock = platform.clock
        self._controller = platform.controller
        self._store = platform.store
        self._relay = platform.relay
        self._delivered: list[tuple[Sequence, Prefill]] = []
        self._tagged = platform.forward.checked
        self._components = platform.driver.core.view.components
        self._budget = 0
        self._chunked = options.profile.chunked
        self.with_decoding = options.profile.batching == "mixed"
        self.unsettled = False
        self._most_in_batch = 0  # requests of a micro-batch; 0 for no limit of its own
        self._passes = platform.driver.core.view.config.passes  # of one request, under way
        stages = platform.forward.stages
        if stages > 1 and options.profile.batch_limits:
            self._most_in_batch = max(1, options.max_running // stages)
        self._refused: Blocked | None = None  # state of the last refused admission
        self._starved: Blocked | None = None  # state of the last refused chunk

    def schedule(self, retractions: int) -> None:
        """Fills the batch of the next pass with chunks, within the budget that decoding leaves.

        retractions: of all requests before this step. Where chunks take precedence, none is
        admitted at a step at which one was retracted: it would come back at once, again and
        again, and those that decode would never go on.
        """
        decoding = len(self._running.decode)
        self.batch, self.unsettled = [], False
        self._budget = self._options.token_budget - (decoding if self.with_decoding else 0)
        self._continue()
        crowded = self._running.retractions > retractions
        if crowded and len(self._running.decode) and not self.with_decoding:
            self.unsettled = True
        else:
            self._admit()

    def _is_refused(self) -> bool:
        """Whether an admission would be refused as before."""
        running = self._running
        full = len(running.admitted) >= self._options.max_running
        if self._most_in_batch:
            own = len(running.decode) + len(running.stalled) + len(self.batch)
            full = full or own >= self._most_in_batch
        return full or running.is_blocked(self._refused) or running.is_blocked(self._starved)

    def ended(self, batch: Batch, elapsed_ns: int, waited_ns: int) -> None:
        """Reports the chunks of a finished pass to the core.

        elapsed_ns: duration of the pass. waited_ns: how long it waited for loads. What an earlier
        pass of the same request covers is not counted again.
        """
        now_ns = self._clock.now_ns
        for sequence, prefill in batch:
            if sequence.first_token_ns == UNSET_NS:
                alone_ns = min(elapsed_ns, now_ns - sequence.passed_ns)
                load_ns = min(waited_ns, alone_ns)
                sequence.load_ns += load_ns
                sequence.compute_ns += alone_ns - load_ns
                sequence.passed_ns = now_ns
            self._prefilled(sequence, prefill)

    def deliver(self, sequence: Sequence, prefill: Prefill) -> None:
        """A prompt that was computed elsewhere has arrived. The next step tells the core."""
        self._delivered.append((sequence, prefill))

    def take_delivered(self) -> None:
        delivered, self._delivered = self._delivered, []
        for sequence, prefill in delivered:
            del self._running.incoming[sequence.job.index]
            self._prefilled(sequence, prefill)
            sequence.incoming = False

    def _chunk(self, left: int) -> int:
        """Tokens of the next chunk. One that does not complete a prompt ends with a page."""
        most = self._options.most_chunk
        budget = min(self._budget, most) if most else self._budget
        return left if left <= budget or not self._chunked else budget - budget % self._page_size

    def _first_chunk(self, sequence: Sequence) -> int:
        """Tokens of the first chunk. An engine that does not divide prompts computes what is not
        cached in one pass, if there is room beside others."""
        if self._chunked or not self.batch or sequence.length <= self._budget:
            return self._chunk(sequence.length)
        cached = self._reusable(sequence) * self._page_size
        return sequence.length if sequence.length - cached <= self._budget else 0

    def _continue(self) -> None:
        """Requests the next chunk of each running prefill, oldest first.

        Stops at the first refusal; otherwise younger requests would take the pages that the older
        one waits for.
        """
        running = self._running
        if running.is_blocked(self._starved):
            return
        for index, sequence in list(running.prefilling.items()):
            left = sequence.length - sequence.begun
            if not left or len(sequence.passes) >= self._passes:
                continue
            chunk = self._chunk(left)
            if chunk < 1:
                return
            if index in running.prefilling and not self._extend(sequence, chunk):
                return

    def _extend(self, sequence: Sequence, chunk: int) -> bool:
        """Requests a chunk. Returns True if it was granted or the sequence itself was retracted."""
        running = self._running
        index = sequence.job.index
        for _ in range(len(running.admitted) + 1):
            outcomes = running.feed(ContinueWanted(index, chunk))
            refusal = running.refusal_of(outcomes, sequence)
            if refusal is None:
                self._add(sequence, outcomes)
                return True
            victim = running.sequences.get(refusal.retract)
            if victim is None:
                self._starved = running.blocked(refusal)
                return False
            running.retract(victim)
            if victim is sequence:
                return True
            # otherwise the victim would be admitted again at once
            self._refused = Blocked(running.progress)
        raise CoreBug(f"request {index}: refused after every other was retracted")

    def _admit(self) -> None:
        running = self._running
        waiting = running.waiting
        running.unpark()
        while len(waiting) and not self._is_refused():
            sequence = waiting.best(self._reusable)
            chunk = sequence.length if sequence.incoming else self._first_chunk(sequence)
            if chunk < 1:
                if len(running.batches) == 1:  # else the next pass has another budget
                    self._refused = Blocked(running.progress)
                return
            if not self._may_begin(sequence):
                return
            self.announce(sequence)
            outcomes = running.feed(AdmitWanted(sequence.job.index, chunk))
            refusal = running.refusal_of(outcomes, sequence)
            if refusal is not None and refusal.reason == "fetching":
                running.park(sequence)
                continue
            if refusal is not None:
                self._refused = running.blocked(refusal)
                return
            waiting.remove(sequence)
            running.admit(sequence)
            if not sequence.incoming:
                running.prefilling[sequence.job.index] = sequence
            self._add(sequence, outcomes)

    def _may_begin(self, sequence: Sequence) -> bool:
        """Whether the reserve lets this request begin. If not, notes when to ask again."""
        running, reserve = self._running, self._running.reserve
        if not running.admitted:
            reserve.idle()
            return True
        if reserve.admits(sequence, running):
            return True
        if reserve.settled:
            self._refused = Blocked(running.progress)
        self.unsettled = not reserve.settled
        return False

    def announce(self, sequence: Sequence) -> None:
        """Announces the request to the core. Done late without storage, because the keys of a long
        queue would not fit in memory."""
        if sequence.announced:
            return
        sequence.announced = True
        sequence.key = self._workload.key(sequence.job, sequence.final)
        if self._tagged:
            sequence.tags = prefix_tags(sequence.key)
        job, length, size = sequence.job, sequence.length, self._page_size
        key = sequence.key.first(length // size)
        # an engine that samples the first token computes the last token of the prompt
        reusable = (length if sequence.incoming else length - 1) // size
        arrival = Arrived(job.index, key, length, reusable, job.priority)
        if self._store is None:
            self._running.feed(arrival)
            return
        self._store.page_bytes.announce(sequence.key, sequence.tags)
        self._running.prefetch(sequence, arrival)

    def _reusable(self, sequence: Sequence) -> int:
        self.announce(sequence)
        for outcome in self._running.feed(MatchWanted(sequence.job.index)):
            if type(outcome) is Matched:
                return outcome.device_pages + outcome.host_pages
        raise CoreBug(f"request {sequence.job.index}: its match was not answered")

    def _add(self, sequence: Sequence, outcomes: list[Outcome]) -> None:
        """Adds the granted chunk to the batch."""
        for outcome in outcomes:
            if type(outcome) is Prefill:
                if outcome.end_token == outcome.start_token and not outcome.completes_prompt:
                    raise CoreBug(f"request {outcome.request}: a chunk of nothing, not its last")
                sequence.set_tables(outcome)
                sequence.begun = outcome.end_token
                sequence.passes.append(outcome.transfer)
                if sequence.incoming:
                    assert self._relay is not None
                    self._running.incoming[sequence.job.index] = sequence
                    self._relay.bring(sequence, outcome)
                    continue
                self.batch.append((sequence, outcome))
                self._budget -= outcome.end_token - outcome.start_token
            elif type(outcome) is Admitted and not sequence.counted:
                note_reuse(sequence, outcome, self._components, self._page_size)
                sequence.counted = True
                sequence.admit_ns = self._clock.now_ns

    def _prefilled(self, sequence: Sequence, prefill: Prefill) -> None:
        running = self._running
        # after: the loads that the pass waits for. Restarted meanwhile, it has other transfers
        failed = any(self._controller.load_failed(transfer) for transfer in prefill.after)
        ok = not failed and prefill.transfer in sequence.passes
        running.feed(PrefillDone(prefill.transfer, ok))
        running.progress += 1
        if not ok:
            return
        sequence.passes.remove(prefill.transfer)
        sequence.kv_tokens = sequence.reported = prefill.end_token
        if not prefill.completes_prompt:
            return
        running.prefilling.pop(sequence.job.index, None)
        if sequence.home != running.turn.index:
            running.batches[sequence.home].gaps.close(sequence)
            sequence.home = running.turn.index
        sequence.generated += 1
        if not sequence.incoming:  # its first token was sampled elsewhere
            running.gaps.sampled(sequence)
        if sequence.first_token_ns == UNSET_NS:
            sequence.first_token_ns = self._clock.now_ns
        if sequence.generated == sequence.outputs:
            running.finish(sequence)
        else:
            running.decode.join(sequence, self._page_size)
