"""Prefetch policies: whether an admission waits for the prefetch of its request. Data only: the
core acts on `waits`, and the engine on `limited`, because the core has no clock."""

from typing import Protocol


class PrefetchPolicy(Protocol):
    """waits: whether a request whose prefetch is under way is refused until the prefetch has ended.
    limited: whether the engine ends the wait after a limit (`PrefetchLimitReached`): a base and
    a time for each token. Not possible without `waits`.
    """

    @property
    def name(self) -> str: ...

    @property
    def waits(self) -> bool: ...

    @property
    def limited(self) -> bool: ...


class BestEffort:
    """An admission never waits; what has not arrived by then is computed."""

    name = "best_effort"
    waits = False
    limited = False


class WaitComplete:
    """A request is admitted when its prefetch has ended."""

    name = "wait_complete"
    waits = True
    limited = False


class Timeout:
    """A request is admitted when its prefetch has ended or has taken too long."""

    name = "timeout"
    waits = True
    limited = True


PLUGINS = {kind.name: kind for kind in (BestEffort, WaitComplete, Timeout)}
