"""What the second engine keeps of a request, and what it runs on. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hicache.core.types import Key
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver
from sim.clock import Clock
from sim.workload import Job

from ..again.pure import PlainCosts


@dataclass(eq=False)
class Request:
    """One request. The names are those of sim/engine/sequence; device, host, depths in pages."""

    job: Job
    arrival_ns: int
    length: int
    key: Key | None = None
    pages: int = 0
    held: int = 0
    generated: int = 0
    counted: bool = False
    device: int = 0
    host: int = 0
    computed: int = 0
    depths: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    admit_ns: int = -1
    first_token_ns: int = -1
    finish_ns: int = -1
    retractions: int = 0
    refusals: int = 0
    load_ns: int = 0
    compute_ns: int = 0
    tokens_ns: list[int] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        return max(1, self.job.output_length)

    @property
    def final(self) -> int:
        return self.job.input_length + self.outputs - 1


@dataclass
class Parts:
    """What an engine runs on."""

    clock: Clock
    driver: Driver
    controller: TransferController
    device: Any
    costs: PlainCosts
