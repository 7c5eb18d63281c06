"""The two roots of errors: the caller's mistakes and our own bugs. Nothing is swallowed."""

from __future__ import annotations


class HicacheError(Exception):
    """Anything this project raises on purpose."""


class CallerError(HicacheError):
    """The caller broke the contract: says what was expected, what was found, what to do."""


class CoreBug(HicacheError, AssertionError):
    """An assert inside the core failed: a defect of this project, never of its caller."""

    exit_code = 10
