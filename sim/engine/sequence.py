"""The engine's record of one request, what it reused, and its result. Does not ask the core."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Admitted, Cached, Granted, Prefill, StateSlots
from hicache.core.components.base import Component
from hicache.core.types import NO_PAGES, FlightId, Key, Pages

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
    generated  tokens sampled so far. held: tokens whose KV is on the device. While it decodes,
               both are as of decode step `since`.
    begun      tokens of its prompt that passes have computed or compute. flights: of the passes
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
    held: int = 0
    reported: int = 0
    since: int = 0
    due: tuple[int, int] = NEVER_DUE
    begun: int = 0
    flights: list[FlightId] = field(default_factory=list)
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

    def set_tables(self, told: Prefill | Granted | Cached) -> None:
        """Stores its current pages and states."""
        self.table, self.tables, self.states = told.tables[0], told.tables, told.states

    @property
    def result(self) -> RequestResult:
        return RequestResult(
            self.job.index,
            self.job.input_length,
            self.job.output_length,
            self.device_tokens,
            self.host_tokens,
            self.computed_tokens,
            self.arrival_ns,
            self.admit_ns,
            self.first_token_ns,
            self.finish_ns,
            self.retractions,
            self.depths,
            self.loaded,
            self.capped,
            self.load_ns,
            self.compute_ns,
            self.refusals,
            self.storage_tokens,
        )


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
