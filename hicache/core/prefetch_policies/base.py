"""The interface of a prefetch policy: whether an admission waits for the prefetch of its request.

An entry of this folder defines `policy()`, which returns a policy. A prefetch policy is data only.
The core acts on `waits`, and the scheduler on `limited`, because the core has no clock.
"""

from __future__ import annotations

from typing import Protocol


class PrefetchPolicy(Protocol):
    """waits: whether a request whose prefetch is under way is refused until the prefetch has ended.
    limited: whether the scheduler ends the wait after a limit (`PrefetchLimitReached`): a base and
    a time for each token. Not possible without `waits`.
    """

    @property
    def name(self) -> str: ...

    @property
    def waits(self) -> bool: ...

    @property
    def limited(self) -> bool: ...
