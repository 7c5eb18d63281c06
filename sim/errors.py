"""Errors of a simulated run. Each class has its own exit code."""

from hicache.core.errors import About, CallerError, HicacheError
from hicache.core.types import RequestId


def too_small(request: RequestId, component: str, needed: int, available: int) -> CallerError:
    """Returns the error for a request that needs more pages than the pool has."""
    return CallerError(
        f"device pool of {component}: expected at least {needed} pages for request {request}, "
        f"found {available}; enlarge the pool or leave the request out"
    )


class SimError(HicacheError):
    """The simulation found a fault; its results are not valid. rule: short name of the
    broken rule."""

    exit_code = 10

    def __init__(self, text: str, rule: str = "", *about: About) -> None:
        super().__init__(text, *about)
        self.rule = rule


class WrongBytesError(SimError):
    """A page has other content than that of its prefix."""

    exit_code = 12


class HazardError(SimError):
    """Two conflicting accesses to one page have no defined order."""

    exit_code = 13


class StuckError(SimError):
    """Requests are left, but nothing is in flight and nothing can start."""

    exit_code = 14
