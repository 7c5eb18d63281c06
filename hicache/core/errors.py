"""The two kinds of error: mistakes of the caller and defects of this project."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

_LONGEST_NAME = 100
# What SGLang, vLLM and torch call some of the entries.
_ELSEWHERE = {
    "lpm": "longest-prefix",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
}


class About(NamedTuple):
    """Whom an error is about: a "node", "request" or "transfer" by number, a "page" of a component
    on a tier, or the whole "pool" of one."""

    kind: str
    number: int = -1
    tier: int = -1
    component: str = ""


class HicacheError(Exception):
    """The base of every error that this project raises on purpose. about: what it names, for
    the story of a failure."""

    def __init__(self, text: str = "", *about: About) -> None:
        super().__init__(text)
        self.about = about


class CallerError(HicacheError):
    """The caller broke the contract. The message says what was expected, what was found and what
    to do."""


class CoreBug(HicacheError, AssertionError):
    """An assert inside the core failed. This is a defect of the project, not of its caller."""

    exit_code = 10


class Detached(HicacheError):
    """A check of a core has failed, and it gets no event any more."""


def unknown(kind: str, name: str, known: Sequence[str]) -> CallerError:
    """The error for an unknown name. It lists the known names and suggests the closest one."""
    known_names = ", ".join(known)
    return CallerError(
        f"{kind}: expected one of {known_names}, found {name!r}{closest(name, known)}"
    )


def closest(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: what was meant; empty if nothing is close.

    Upper case and the hyphens of an option do not count. A name with the same letters in another
    order comes first.
    """
    if len(name) > _LONGEST_NAME:
        return ""  # comparing takes quadratic time
    typed = name.lower().lstrip("-")
    elsewhere = _ELSEWHERE.get(typed.replace("-", "_"))
    if elsewhere in known:
        return f"; did you mean {elsewhere}?"
    bare = {text.lower().lstrip("-"): text for text in known}
    close = difflib.get_close_matches(typed, bare)
    close.sort(key=lambda text: sorted(text) != sorted(typed))
    return f"; did you mean {bare[close[0]]}?" if close else ""
