"""The interface of a router: which replica gets a request, decided when it arrives.

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

from ..loads import Loads
from ..options import RouterOptions


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
