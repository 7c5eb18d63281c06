"""One request as the engine sees it, and what is told about it afterwards. Records only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Cached, Granted, Prefill, StateSlots
from hicache.core.types import NO_PAGES, FlightId, Key, Pages

from ..content import Words
from ..workload import Job

UNSET_NS = -1
NEVER_DUE = (-1, -1)


class RequestResult(NamedTuple):
    """What became of one request. Times from the start of the run; -1 where it did not happen.

    Tokens reused and computed are those of its first admission. A load or pass that failed before
    the first token makes the next admission count instead. What a retracted request computed again,
    or found again of its own, is not in them.

    depths   per component alone, the deepest boundary in tokens at which it was there on any tier.
    loaded   pages of each component that were loaded for it.
    capped   why it reused less than the first component's depth: the component whose boundary was
             the shallowest, or "load" where all went as deep; empty where it reused all.
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


@dataclass(slots=True, eq=False)
class Sequence:
    """A request that has arrived and not ended.

    outputs    tokens it will generate, at least 1 (a prefill samples one).
    length     tokens of its prompt; after a retraction what it had generated counts as prompt.
    generated  tokens sampled so far, and held: tokens whose KV is on the device; both as of decode
               step `since` while it decodes.
    key, tags  of everything it will ever have; empty before the core is told of it.
    due        decode step at which it needs something, and what (see sim/engine/decode).
    announced  the core was told of it.
    counted    reuse was noted and is not to be noted again.
    table      of the first component; tables: of all positional ones; states: of the others.
    alone      how often it was retracted while no other was admitted: it must not go on for ever.
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
    flight: FlightId = 0
    device_tokens: int = 0
    host_tokens: int = 0
    computed_tokens: int = 0
    admit_ns: int = UNSET_NS
    first_token_ns: int = UNSET_NS
    finish_ns: int = UNSET_NS
    retractions: int = 0
    alone: int = 0
    depths: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    capped: str = ""

    @property
    def final(self) -> int:
        """Tokens whose KV it will have when it ends: the last one sampled has none."""
        return final_length(self.job)

    def set_tables(self, told: Prefill | Granted | Cached) -> None:
        """The pages and states that it has from now on."""
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
        )


def final_length(job: Job) -> int:
    """Committed tokens of a job at its end."""
    return job.input_length + max(1, job.output_length) - 1
