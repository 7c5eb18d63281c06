"""What can go wrong in a simulated world, each kind with the exit code that names it.

Lives here: the exception classes and nothing else. Must not live here: how a defect is found.
"""

from __future__ import annotations

from hicache.core.errors import HicacheError


class SimError(HicacheError):
    """A run cannot be believed from here on. rule: which one was broken, in a word or two."""

    exit_code = 10

    def __init__(self, text: str, rule: str = "") -> None:
        super().__init__(text)
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
