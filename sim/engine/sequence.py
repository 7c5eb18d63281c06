"""The engine's record of one request, its result, and the sequences that decode together.

Every active sequence gains one token per decode step, so a `DecodeSet` counts the tokens of all
without visiting each. With `steps` decode steps done so far,

    held(s) = s.kv_tokens + steps - s.since   context of the next step = base + active * (steps + 1)
    base    = sum of (s.kv_tokens - s.since)   changes only when a sequence joins or leaves

`TokenGaps` has the times between two tokens of a request (inter-token latency), exact, in 8 bytes a
step and 32 bytes a range of steps:

    gaps of a request = the steps of its ranges, one gap each
                      + the time that it waited before the first step of a range, added to that gap
                      + one gap for each prefill of a request that was retracted, which samples one

A pass in which nobody decodes although sequences are active is no step: its time is part of the
next step. A sequence that joins after it has not waited so long, so its wait counts as negative. A
range ends when the sequence stops decoding, or waits for pages.
"""

from __future__ import annotations

from array import array
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Admitted, Cached, Granted, Prefill, StateSlots
from hicache.core.components import Component
from hicache.core.types import NO_PAGES, Key, Pages, RequestId, TransferId

from ..content import Words
from ..workload import Job

UNSET_NS = -1
NEVER_DUE = (-1, -1)


class RequestResult(NamedTuple):
    """The result of one request. Times since the start of the run, -1 if it did not happen.

    Tokens reused and computed are those of its first admission. A load or pass that failed before
    the first token makes the next admission count instead. What a retracted request computed again,
    or found again of its own, is not in them.

    depths   deepest boundary in tokens at which each component alone was present, on any tier.
    loaded   pages of each component that were loaded for it.
    capped   why it reused less than the depth of the first component: the component with the
             shallowest boundary, or "load" if all have the same depth; empty if it reused all.

    Until its first token, a request is in a forward pass or it waits for one (in the queue, between
    two of its chunks, or after a retraction):

        first_token_ns - arrival_ns = queue_ns + load_ns + compute_ns
        load_ns     its passes stood still for loads from host, for it or for another in the pass
        compute_ns  its passes computed
        queue_ns    the rest

    refusals  how often an admission, a chunk or a growth was refused for lack of pages or for a
              copy under way, and asked for again.
    storage_tokens  reused pages that its own prefetch had brought to host. They are not in
              `host_tokens`.
    """

    request: int
    input_length: int
    output_length: int
    device_tokens: int
    host_tokens: int
    computed_tokens: int
    arrival_ns: int
    admit_ns: int
    first_token_ns: int
    finish_ns: int
    retractions: int
    depths: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    capped: str = ""
    load_ns: int = 0
    compute_ns: int = 0
    refusals: int = 0
    storage_tokens: int = 0

    @property
    def queue_ns(self) -> int:
        return self.first_token_ns - self.arrival_ns - self.load_ns - self.compute_ns


@dataclass(slots=True, eq=False)
class Sequence:
    """A request that has arrived and not ended.

    outputs    tokens it will generate, at least 1 (a prefill samples one).
    length     tokens of its prompt; after a retraction this includes the generated tokens.
    generated  tokens sampled so far. kv_tokens: those whose KV is on the device. While it decodes,
               both are as of decode step `since`.
    begun      tokens of its prompt that passes have computed or compute. passes: the transfers
               under way that compute chunks of it. passed_ns: when one has ended last.
    home       its micro-batch, when it decodes or has decoded.
    key, tags  for all tokens it will ever have; empty until it is announced.
    due        (step, kind): the decode step at which it ends or needs pages (see decode).
    announced  the core knows the request.
    counted    its reuse was recorded and is not recorded again.
    table      pages of the first component; tables: of all positional components; states: state
               slots of the others.
    alone      how often it was retracted while no other was admitted; limited.
    load_ns, compute_ns, refusals, storage_tokens: see RequestResult.
    token_ns   when its last token came, unless it decodes. range_*: the decode steps since it last
               waited: first and end, and the time that it waited before them (see token_gaps).
    prefetched: first page of its prefetch, and how many pages it brought.
    incoming: its prompt was computed elsewhere and has not arrived yet (see `Relay`).
    """

    job: Job
    outputs: int
    length: int
    arrival_ns: int
    key: Key = field(default_factory=lambda: Key(b"", 8))
    tags: Words = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    announced: bool = False
    counted: bool = False
    table: Pages = field(default_factory=lambda: NO_PAGES)
    tables: tuple[Pages, ...] = ()
    states: tuple[StateSlots, ...] = ()
    generated: int = 0
    kv_tokens: int = 0
    reported: int = 0
    since: int = 0
    due: tuple[int, int] = NEVER_DUE
    begun: int = 0
    passes: list[TransferId] = field(default_factory=list)
    home: int = 0
    passed_ns: int = 0
    device_tokens: int = 0
    host_tokens: int = 0
    computed_tokens: int = 0
    admit_ns: int = UNSET_NS
    first_token_ns: int = UNSET_NS
    finish_ns: int = UNSET_NS
    retractions: int = 0
    load_ns: int = 0
    compute_ns: int = 0
    refusals: int = 0
    alone: int = 0
    storage_tokens: int = 0
    incoming: bool = False
    prefetched: tuple[int, int] = (0, 0)
    token_ns: int = UNSET_NS
    range_first: int = -1
    range_end: int = -1
    range_waited_ns: int = 0
    depths: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    capped: str = ""

    @property
    def final(self) -> int:
        """Tokens whose KV it has when it ends: the last sampled token has none."""
        return final_length(self.job)

    def set_tables(self, prefill: Prefill | Granted | Cached) -> None:
        """Stores its current pages and states."""
        self.table, self.tables, self.states = prefill.tables[0], prefill.tables, prefill.states

    @property
    def result(self) -> RequestResult:
        job, names = self.job, RequestResult._fields[3:]
        values = [getattr(self, name) for name in names]
        return RequestResult(job.index, job.input_length, job.output_length, *values)


def final_length(job: Job) -> int:
    """Tokens of a job whose KV exists when it ends."""
    return job.input_length + max(1, job.output_length) - 1


def note_reuse(
    sequence: Sequence, admitted: Admitted, components: abc.Sequence[Component], page_size: int
) -> None:
    """Stores on the sequence how much it reused, in tokens."""
    stored = from_storage(admitted, *sequence.prefetched)
    sequence.device_tokens = admitted.device_pages * page_size
    sequence.host_tokens = (admitted.host_pages - stored) * page_size
    sequence.storage_tokens = stored * page_size
    sequence.computed_tokens = admitted.tokens_to_compute
    sequence.depths = tuple(depth * page_size for depth in admitted.depths)
    sequence.loaded = admitted.loaded_pages
    sequence.capped = capped(admitted, components)


def from_storage(admitted: Admitted, first_page: int, fetched_pages: int) -> int:
    """Returns how many of the reused host pages the request's own prefetch had brought."""
    begin = max(first_page, admitted.device_pages)
    end = min(first_page + fetched_pages, admitted.device_pages + admitted.host_pages)
    return max(0, end - begin)


def capped(admitted: Admitted, components: abc.Sequence[Component]) -> str:
    """See `RequestResult.capped`."""
    depths, reused = admitted.depths, admitted.device_pages + admitted.host_pages
    if not depths or reused >= depths[0]:
        return ""
    least = min(depths)
    return components[depths.index(least)].name if least < depths[0] else "load"


Times = NDArray[np.int64]
_NO_STEP = -1


class TokenGaps:
    """See the module. steps_ns: the duration of each decode step and pass, by its number.
    paused_ns: the time since the last step in which decoding waited for passes of chunks. now_ns:
    the time; called at a step boundary."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.steps_ns = array("q")
        self.paused_ns = 0
        self._now_ns = now_ns
        self._ranges = tuple(array("q") for _ in range(4))  # request, first step, end, waited ns
        self._single = tuple(array("q") for _ in range(2))  # request, ns

    def step(self, elapsed_ns: int, first: int = -1) -> None:
        """A step has taken so long. first: the number of the first step since the last call, if
        `steps_ns` has got others meanwhile; it waited for the passes before it."""
        self.steps_ns.append(elapsed_ns)
        self.steps_ns[first] += self.paused_ns
        self.paused_ns = 0

    def sampled(self, sequence: Sequence) -> None:
        """A prefill gave the sequence a token: its first one, or one after a retraction."""
        now_ns = self._now_ns()
        if sequence.token_ns != UNSET_NS:
            self.close(sequence)
            _append(self._single, sequence.job.index, now_ns - sequence.token_ns)
        sequence.token_ns = now_ns

    def join(self, sequence: Sequence, step: int) -> None:
        """The sequence decodes from this step on. It goes on with its range if it has missed
        neither a step nor time."""
        waited_ns = self._now_ns() - sequence.token_ns - self.paused_ns
        if sequence.range_end != step or waited_ns or sequence.range_first == _NO_STEP:
            self.close(sequence)
            sequence.range_first, sequence.range_end = step, step
            sequence.range_waited_ns = waited_ns

    def leave(self, sequence: Sequence, step: int) -> None:
        """The sequence has decoded until this step, which has just ended."""
        if step > sequence.range_end:
            sequence.range_end = step
            sequence.token_ns = self._now_ns() - self.paused_ns

    def close(self, sequence: Sequence) -> None:
        """Notes the range of a sequence that has left."""
        first, end = sequence.range_first, sequence.range_end
        if end > first != _NO_STEP:
            _append(self._ranges, sequence.job.index, first, end, sequence.range_waited_ns)
        sequence.range_first = _NO_STEP

    def weighted(self, ended: Times) -> tuple[Times, Times]:
        """The gaps of the requests that ended: times in nanoseconds, and how often each occurs."""
        _, single_ns = _kept(self._single, ended)
        steps = np.array(self.steps_ns, dtype=np.int64)
        _, first, end, waited_ns = _kept(self._ranges, ended)
        late = waited_ns != 0
        change = np.zeros(len(steps) + 1, dtype=np.int64)
        np.add.at(change, first + late, 1)
        np.add.at(change, end, -1)
        counts = np.cumsum(change[:-1])
        alone = np.concatenate((steps[first[late]] + waited_ns[late], single_ns))
        used = counts > 0
        items = np.ones(len(alone), dtype=np.int64)
        return np.concatenate((steps[used], alone)), np.concatenate((counts[used], items))

    def slower(self, limit_ns: int, requests: int) -> Times:
        """How many gaps of each request, by its number, are longer than the limit."""
        steps = np.asarray(self.steps_ns)
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(steps > limit_ns)))
        request, first, end, waited_ns = (np.asarray(column) for column in self._ranges)
        slow = before[end] - before[first]
        slow += (steps[first] <= limit_ns) & (steps[first] + waited_ns > limit_ns)
        slow -= (steps[first] > limit_ns) & (steps[first] + waited_ns <= limit_ns)
        result = np.zeros(requests, dtype=np.int64)
        np.add.at(result, request, slow)
        single, single_ns = (np.asarray(column) for column in self._single)
        np.add.at(result, single[single_ns > limit_ns], 1)
        return result


def _append(columns: tuple[array[int], ...], *values: int) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def _kept(columns: tuple[array[int], ...], requests: Times) -> tuple[Times, ...]:
    """The rows of these requests."""
    arrays = [np.asarray(column) for column in columns]
    rows = np.isin(arrays[0], requests)
    return tuple(column[rows] for column in arrays)


_ENDS, _FULL = 0, 1


class DecodeSet:
    """See the module. steps: decode steps done. gaps: told of each sequence that joins or leaves.

    Entries of the heap: (step, kind, request).
    """

    def __init__(self, gaps: TokenGaps) -> None:
        self.steps = 0
        self._gaps = gaps
        self._active: dict[int, Sequence] = {}
        self._base = 0
        self._due: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._active)

    @property
    def context(self) -> int:
        """Tokens that the sequences attend to in the next step, including their new tokens."""
        return self._base + len(self._active) * (self.steps + 1)

    def join(self, sequence: Sequence, page_size: int) -> None:
        """Adds a sequence. It decodes from the next step on, until it ends or its table is full."""
        sequence.since = self.steps
        self._gaps.join(sequence, self.steps)
        self._active[sequence.job.index] = sequence
        self._base += sequence.kv_tokens - sequence.since
        free_tokens = len(sequence.table) * page_size - sequence.kv_tokens
        left = sequence.outputs - sequence.generated
        kind = _FULL if free_tokens < left else _ENDS
        sequence.due = (self.steps + min(free_tokens, left), kind)
        heappush(self._due, (*sequence.due, sequence.job.index))

    def leave(self, sequence: Sequence) -> None:
        """Removes a sequence and brings its counters up to date."""
        done = self.steps - sequence.since
        self._base -= sequence.kv_tokens - sequence.since
        sequence.kv_tokens += done
        sequence.generated += done
        sequence.due = NEVER_DUE
        self._gaps.leave(sequence, self.steps)
        del self._active[sequence.job.index]

    def generated(self, sequence: Sequence) -> int:
        """Tokens that a sequence has sampled so far, whether it decodes or not."""
        done = self.steps - sequence.since if self.holds(sequence) else 0
        return sequence.generated + done

    def holds(self, sequence: Sequence) -> bool:
        return sequence.job.index in self._active

    def pop_ended(self) -> Sequence | None:
        """Removes and returns one sequence that has generated all its tokens, or None."""
        return self._pop(_ENDS)

    def pop_full(self) -> Sequence | None:
        """Removes and returns one sequence whose table is full, or None. Call `pop_ended` first."""
        return self._pop(_FULL)

    def _pop(self, kind: int) -> Sequence | None:
        if self.quiet_steps() != 0 or self._due[0][1] != kind:
            return None
        sequence = self._active[heappop(self._due)[2]]
        self.leave(sequence)
        return sequence

    def quiet_steps(self) -> int:
        """Steps until the next sequence is due; -1 when none decodes."""
        due = self._due
        while due:
            step, kind, index = due[0]
            sequence = self._active.get(index)
            if sequence is not None and sequence.due == (step, kind):
                assert step >= self.steps, f"request {index} was due at {step}, now {self.steps}"
                return step - self.steps
            heappop(due)
        return -1


class MicroBatch:
    """stalled: decoding sequences that wait for pages. gaps: the times between tokens. busy: a pass
    of it has not left the last stage. waits_ns: since when it has none."""

    def __init__(self, index: int, now_ns: Callable[[], int]) -> None:
        self.index = index
        self.gaps = TokenGaps(now_ns)
        self.decode = DecodeSet(self.gaps)
        self.stalled: dict[RequestId, Sequence] = {}
        self.busy = False
        self.waits_ns = 0

    def holds(self, sequence: Sequence) -> bool:
        """Whether its pass computes the sequence, which decodes in it."""
        return self.busy and self.decode.holds(sequence)

    def pause(self, now_ns: int) -> None:
        """Counts the time until now, in which it had no pass, as a wait of those that decode."""
        if not self.busy:
            if len(self.decode):
                self.gaps.paused_ns += now_ns - self.waits_ns
            self.waits_ns = now_ns
