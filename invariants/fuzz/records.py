"""Records of a run: a request as the engine knows it, and a pending reply. Data only."""

from dataclasses import dataclass, field
from typing import NamedTuple

from hicache.core.actions import Action

LEAST_MADE_UP = 1 << 20  # request numbers from here on are made by faults


@dataclass(slots=True)
class Job:
    """One request as the engine knows it. stage: waiting, prefilling, idle (admitted, without
    a pass in flight) or decoding. transfers: of its passes in flight, in their order. begun: tokens
    up to where they go. more: tokens that a server is to generate for it."""

    id: int
    tokens: list[int]
    namespace: str
    prompt: int
    stage: str = "waiting"
    computed: int = 0
    committed: int = 0
    reported: int = 0  # computed tokens reported to the core
    transfers: list[int] = field(default_factory=list)
    begun: int = 0
    more: int = 0

    def may_go_on(self, passes: int) -> bool:
        """Whether its next chunk may begin, if so many of its passes may be in flight."""
        more = self.begun < self.prompt and len(self.transfers) < passes
        return self.stage == "idle" or (self.stage == "prefilling" and more)


class Pending(NamedTuple):
    """A pending reply."""

    due: int
    tie: int
    number: int
    action: Action
    fault: str
