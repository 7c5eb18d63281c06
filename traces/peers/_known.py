"""Failures that were reported already: data, matched by law and by what ran of the engine.

`invariants/peers/known/PEER.json` has a row for each report. A failure matches a row if its law is
the row's, its release is among the row's, and each function that the row names runs in the shrunk
sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hicache.files import TEXT, Maybe, Record, fit, parsed, text_of
from invariants.peers import facts

FOLDER = facts.ENGINES.parent / "known"
NEW_FAILURE = 11  # exit code, where a failure is not known
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Report:
    """report: where it was reported, or what it is. law: of the harness. kind: what the failure's
    kind begins with, behind the law; empty and without functions it is the law alone. functions:
    that run in it, as file:function, where a file may be its end. first, last: the
    releases that have it; last is None while it is not mended. text: one sentence."""

    report: str
    law: str
    kind: str
    functions: Sequence[str]
    first: str
    last: str | None
    text: str


_SHAPES = {"str": TEXT, "str | None": Maybe(TEXT), "Sequence[str]": [TEXT]}


def reports(peer: str) -> list[Report]:
    """The known failures of a peer. Raises CallerError if the file is damaged."""
    path = FOLDER / f"{peer.replace('-', '_')}.json"
    if not path.exists():
        return []
    rows = parsed(text_of(str(path), "table of known failures", _MOST_BYTES))
    return [fit(row, Record(Report, _SHAPES), str(path)) for row in rows]


def match(
    reports: Sequence[Report],
    releases: Sequence[str],
    release: str,
    failure: dict[str, Any],
    where: Sequence[Sequence[str]],
) -> Report | None:
    """The report that a failure is, or None. where: file and name of each function that ran."""
    for one in reports:
        if one.law != failure["code"] or not _within(one, releases, release):
            continue
        kind = failure["kind"][len(one.law) :].strip()
        fits = kind.startswith(one.kind) if one.kind or one.functions else not kind
        if fits and all(_ran(name, where) for name in one.functions):
            return one
    return None


def _within(one: Report, releases: Sequence[str], release: str) -> bool:
    """A checkout has the release that its peer was opened as."""
    if release not in releases:
        return True
    at = releases.index(release)
    last = releases.index(one.last) if one.last in releases else len(releases)
    first = releases.index(one.first) if one.first in releases else 0
    return first <= at <= last


def _ran(name: str, where: Sequence[Sequence[str]]) -> bool:
    file, _, function = name.rpartition(":")
    return any(path.endswith(file) and ran == function for path, ran in where)
