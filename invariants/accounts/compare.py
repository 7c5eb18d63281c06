"""Compares what a run reports with the accounts that were counted a second time.

Lives here: the comparison of a document's keys with figures, and the error. Does not compute
figures (see figures).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose

from ..base import HarnessFault
from .figures import Figures

CHECK = "ACCOUNTS"
SENTENCE = "The accounts of a run equal those counted a second time from its events."
_CLOSE = 1e-9  # two orders of the same sum


def check(figures: Figures, document: Mapping[str, object], replay: str = "") -> None:
    """Raises HarnessFault for the first figure that the document does not have."""
    wrong = next(differences(figures, document), "")
    if wrong:
        fail(wrong, replay)


def fail(equation: str, replay: str = "") -> None:
    raise HarnessFault(CHECK, SENTENCE, equation, (), replay)


def differences(figures: Figures, document: Mapping[str, object]) -> Iterator[str]:
    """The keys whose values differ, one sentence each."""
    for key, expected in figures.items():
        found = _value(document, key)
        if not _equal(expected, found):
            yield f"{key}: expected {expected!r}, found {found!r}"


def _value(document: Mapping[str, object], key: str) -> object:
    """The value of a key with dots; the name of a component or a reason may not have any."""
    value: object = document
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return "nothing"
        value = value[part]
    return value


def _equal(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return isclose(expected, found, rel_tol=_CLOSE, abs_tol=1e-15)
    return type(expected) is type(found) and expected == found
