"""The two kinds of error: mistakes of the caller and defects of this project."""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """Whom an error is about: a "node", "request" or "flight" by number, a "page" of a component on
    a tier, or the whole "pool" of one."""

    kind: str
    number: int = -1
    tier: int = -1
    component: str = ""


class HicacheError(Exception):
    """The base of every error that this project raises on purpose. about: what it names, for
    `hicache explain`."""

    def __init__(self, text: str = "", *about: About) -> None:
        super().__init__(text)
        self.about = about


class CallerError(HicacheError):
    """The caller broke the contract. The message says what was expected, what was found and what
    to do."""


class CoreBug(HicacheError, AssertionError):
    """An assert inside the core failed. This is a defect of the project, not of its caller."""

    exit_code = 10
