"""What logits and checks have seen of mistakes that were planted: tables, verdict, JSON document.

Does not play mistakes (see planted_work).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from rich.table import Table

from ..terminal.tables import console, pairs, print_sentences, table
from .planted_work import Found, Seen

FORMAT, VERSION = "hicache-prove-planted", 1
SURVIVED = 17  # the exit code if logits do not see a wrong definition


def code_of(found: Sequence[Found]) -> int:
    return SURVIVED if any(one.definition and unseen(one) for one in found) else 0


def unseen(one: Found) -> list[str]:
    """The families of a definition whose logits did not show it."""
    seen = {seen.family for seen in one.logits}
    return [family for family in one.families if family not in seen]


def show(found: Sequence[Found], settings: dict[str, object], stream: TextIO) -> None:
    out = console(stream)
    rows = [(name, str(value)) for name, value in settings.items() if value not in ("", None)]
    out.print(pairs("Mistakes under prove", rows))
    definitions = [one for one in found if one.definition]
    bugs = [one for one in found if not one.definition]
    if definitions:
        out.print(_definitions(definitions))
    shown = [one for one in bugs if one.logits]
    if shown:
        out.print(_bugs(shown))
    if len(shown) < len(bugs):
        out.print(_kinds([one for one in bugs if not one.logits]))
    print_sentences("In words", verdict(found), stream)


def verdict(found: Sequence[Found]) -> list[str]:
    """What the run means."""
    definitions = [one for one in found if one.definition]
    bugs = Counter(one.seen_by for one in found if not one.definition)
    said: list[str] = []
    if definitions:
        whole = [one for one in definitions if not unseen(one)]
        alone = [one for one in whole if one.checks is None]
        said.append(
            f"Logits see {len(whole)} of {len(definitions)} wrong definitions, in every family of "
            f"each; the checks alone do not see {len(alone)} of these."
        )
        said += [
            f"Logits do not see {one.name} in {', '.join(unseen(one))}."
            for one in definitions
            if unseen(one)
        ]
    if bugs:
        said.append(
            f"Of {bugs.total()} planted bugs, logits and checks see {bugs['both']}, logits alone "
            f"{bugs['logits']}, checks alone {bugs['checks']}, and nobody {bugs['nobody']} in so "
            "few sequences."
        )
    return said


def _definitions(found: Sequence[Found]) -> Table:
    result = table("Wrong definitions", "definition", "passes", "bounds", "with checks alone")
    result.columns[0].no_wrap = True
    for one in found:
        result.add_row(one.name, _most_passes(one), _bounds(one.logits), _kind(one.checks))
    return result


def _most_passes(one: Found) -> str:
    """Of the family that needed most, or what was played for nothing."""
    if unseen(one):
        return f"not in {one.passes[0]:,}"
    return f"{max(seen.passes for seen in one.logits):,}"


def _bugs(found: Sequence[Found]) -> Table:
    result = table("Planted bugs that logits see", "bug", "passes", "bounds", "with checks")
    result.columns[0].no_wrap = True
    for one in found:
        result.add_row(one.name, f"{one.logits[0].passes:,}", _bounds(one.logits), _first(one))
    return result


def _kinds(found: Sequence[Found]) -> Table:
    """What sees the others first, with the number of bugs."""
    result = table("Planted bugs that logits do not see", "first seen by", "bugs")
    for kind, count in Counter(_kind(one.first) for one in found).most_common():
        result.add_row(kind, f"{count:,}")
    return result


def _bounds(seen: Sequence[Seen]) -> str:
    """The smallest one. Logits that are no number are infinitely far, and where a page is missing
    there are none."""
    compared = [one.bounds for one in seen if one.bounds]
    if not compared:
        return "no page"
    least = min(compared)
    return f"{least:,.0f}" if math.isfinite(least) else "no number"


def _first(one: Found) -> str:
    """What sees it first with everything on, and the check that would."""
    if one.first is None or not one.first.by_logits:
        return _kind(one.first)
    return f"logits, then {_kind(one.checks)}" if one.checks else "logits alone"


def _kind(seen: Seen | None) -> str:
    return seen.kind if seen else "nothing"


def document(
    found: Sequence[Found], settings: dict[str, object], command: str, complete: bool
) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "complete": complete,
        "settings": settings,
        "mistakes": [
            {
                "name": one.name,
                "title": one.title,
                "definition": one.definition,
                "families": list(one.families),
                "seen_by": one.seen_by,
                "logits": [_seen(seen) for seen in one.logits],
                "before": _seen(one.before),
                "first": _seen(one.first),
                "checks": _seen(one.checks),
                "passes_without_checks": one.passes[0],
                "passes": one.passes[1],
                "busy_seconds": round(one.seconds, 3),
            }
            for one in found
        ],
        "conclusions": verdict(found),
    }


def _seen(seen: Seen | None) -> dict[str, object]:
    """Empty for None. bounds: null for logits that are no number."""
    if seen is None:
        return {}
    return asdict(seen) | {"bounds": seen.bounds if math.isfinite(seen.bounds) else None}
