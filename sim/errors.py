"""What can go wrong in a simulated world, each kind with the exit code that names it.

Lives here: the exception classes, and an error that several modules raise. Must not live here:
how a defect is found.
"""

from __future__ import annotations

from hicache.core.errors import About, CallerError, HicacheError
from hicache.core.types import RequestId


def too_small(request: RequestId, component: str, needed: int, available: int) -> CallerError:
    """For a request that can never have the pages that it needs."""
    return CallerError(
        f"device pool of {component}: expected at least {needed} pages for request {request}, "
        f"found {available}; enlarge the pool or leave the request out"
    )


class SimError(HicacheError):
    """A run cannot be believed from here on. rule: which one was broken, in a word or two."""

    exit_code = 10

    def __init__(self, text: str, rule: str = "", *about: About) -> None:
        super().__init__(text, *about)
        self.rule = rule


class WrongBytesError(SimError):
    """A page does not hold what its prefix says it must."""

    exit_code = 12


class HazardError(SimError):
    """Two conflicting accesses to one page that nothing orders."""

    exit_code = 13


class StuckError(SimError):
    """Work is left, nothing is in flight, and nothing can be started."""

    exit_code = 14
