"""The interface of a router: which replica gets a request, decided when it arrives; and what one
knows of loads.

A module of this folder defines `KV_EVENTS`, whether its router reads KV events, and
`router(replicas, page_size, options)`. A router sees what one of a real deployment sees: the
prompt, the replies that pass through it (so it counts loads itself), and the KV events that the
caches emit. It never sees a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hicache import registry
from hicache.core.types import Tier

from ..options import RouterOptions


class Loads:
    """What a router knows of the load of each replica: from what it sent there and what came back.

        waiting  prompt tokens to compute, of the requests whose first token has not come back
        held     prompt tokens of the requests that have not ended
        sent     prompt tokens of all requests so far

    It does not know how long answers will be, so generated tokens are not in these figures.
    """

    def __init__(self, replicas: int) -> None:
        self.waiting = [0] * replicas
        self.held = [0] * replicas
        self.sent = [0] * replicas
        self._open: dict[int, tuple[int, int, int]] = {}  # replica, tokens to compute, prompt

    def send(self, request: int, replica: int, prompt: int, compute: int) -> None:
        """A request goes to a replica. compute: prompt tokens that it is believed to compute."""
        self._open[request] = (replica, compute, prompt)
        self.waiting[replica] += compute
        self.held[replica] += prompt
        self.sent[replica] += prompt

    def answer(self, request: int) -> None:
        """The first token of a request came back. Later answers change nothing."""
        if (found := self._open.get(request)) is not None:
            replica, compute, prompt = found
            self.waiting[replica] -= compute
            self._open[request] = (replica, 0, prompt)

    def end(self, request: int) -> None:
        """A request has ended, or left the replica."""
        replica, compute, prompt = self._open.pop(request)
        self.waiting[replica] -= compute
        self.held[replica] -= prompt

    def least(self) -> int:
        """The replica with the fewest tokens held, then sent; then the first."""
        return min(range(len(self.held)), key=lambda one: (self.held[one], self.sent[one], one))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a router sees of a request. session: -1 for none. digests: returns those of the whole
    pages of its prompt, which costs a hash for each."""

    index: int
    session: int
    input_tokens: int
    digests: Callable[[], Sequence[bytes]]


class Router:
    """A subclass defines `choose`. One with KV events defines `stored` and `removed` too."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.loads = Loads(replicas)

    def choose(self, asked: Asked) -> int:
        """The replica of a request, a number from 0. It is sent there at once."""
        raise NotImplementedError

    def sent(self, asked: Asked, replica: int) -> None:
        """The request was sent to the replica that `choose` returned."""
        self.loads.send(asked.index, replica, asked.input_tokens, asked.input_tokens)

    def answered(self, request: int) -> None:
        """The first token of a request came back."""
        self.loads.answer(request)

    def ended(self, request: int) -> None:
        """The last token of a request came back, or a decode replica took it over."""
        self.loads.end(request)

    def stored(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        """A KV event: these pages are on a tier of the replica."""

    def removed(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        """A KV event: these pages left a tier of the replica."""


def reads_events(name: str) -> bool:
    """Whether this router needs KV events. Raises CallerError for an unknown name."""
    return bool(registry.load(registry.ROUTERS, name).KV_EVENTS)


def make(replicas: int, page_size: int, options: RouterOptions) -> Router:
    """A new router. Raises CallerError for an unknown name."""
    found: Router = registry.load(registry.ROUTERS, options.name).router(
        replicas, page_size, options
    )
    return found
