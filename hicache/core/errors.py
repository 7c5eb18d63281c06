"""The two kinds of error: mistakes of the caller and defects of this project."""

from __future__ import annotations


class HicacheError(Exception):
    """The base of every error that this project raises on purpose."""


class CallerError(HicacheError):
    """The caller broke the contract. The message says what was expected, what was found and what
    to do."""


class CoreBug(HicacheError, AssertionError):
    """An assert inside the core failed. This is a defect of the project, not of its caller."""

    exit_code = 10
