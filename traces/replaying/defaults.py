"""What an option of a replay means that was not given, and the names that values may have."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from hicache.core.components.base import known
from hicache.core.types import Tier
from invariants.watch import Level

Mode = Literal["timed", "hits"]
MODES: tuple[Mode, ...] = get_args(Mode)
CHECKS: tuple[Level, ...] = get_args(Level)
COMPONENTS = known()
BACKBONE = COMPONENTS[0]
MODEL = "llama-3.1-8b"
HARDWARE = "h100"
WRITE_POLICY = "write_through"
OWN_STATES = 3  # of a running request
PREFIX_TOKENS = 4096  # of a cached prefix: one window or state for each
HOST_RATIO: dict[Mode, Fraction] = {"timed": Fraction(2), "hits": Fraction(0)}
STAND_IN_WINDOW = 1024  # for a model without a window
HOST_COPIES = ("rank", "node")  # who keeps the rows that ranks have alike
PREFETCH = "wait_complete"
PREFETCH_THRESHOLD_TOKENS = 256
# SGLang's for its policy `timeout`: 1 s, and 0.25 s for 1,024 tokens. `wait_complete` has no limit
# there; here it has one, so that a store that hangs costs a request no more than that.
LIMITS_NS = {"timeout": (1_000_000_000, 244_140), "wait_complete": (10_000_000_000, 2_441_406)}


@dataclass(frozen=True, slots=True)
class Pin:
    """A prefix to pin: the first tokens of a request's prompt. str() is what the user writes."""

    request: int
    tokens: int
    tier: Tier = Tier.DEVICE

    def __str__(self) -> str:
        return f"{self.request}:{self.tokens}{'@host' if self.tier == Tier.HOST else ''}"


class Pins(tuple[Pin, ...]):
    """The value of --pin."""

    def __str__(self) -> str:
        return ",".join(map(str, self))
