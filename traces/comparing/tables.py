"""A comparison as a document and as tables.

Does not find what changed; see changes and requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from ..html.page import percent, reason_name, seconds
from ..terminal.tables import console, table
from ..terminal.text import name as shown
from .changes import change, figures, lost, settings, told_value, value
from .requests import Changed, Requests
from .sides import Side

Rows = list[list[str]]

# What ended a hit without any loss.
_ENDED = {"first_seen": "first seen", "complete": "all hit"}


def document(sides: Sequence[Side], requests: Requests | None) -> dict[str, Any]:
    """The keys of `--json` beside the sentences; see docs/json.md."""
    return {
        "sides": [
            {
                "path": side.path,
                "label": side.label,
                "hicache_version": side.version,
                "digest": side.digest,
                "expected_error": side.expected_error,
            }
            for side in sides
        ],
        "settings": [
            {"name": one.name, "values": list(one.values), "counts": one.counts}
            for one in settings(sides)
        ],
        "figures": {name: values for name, _, _, values in figures(sides)},
        "lost_by_reason": dict(lost(sides)),
        "requests": None if requests is None else _requests(requests),
    }


def _requests(found: Requests) -> dict[str, Any]:
    ended = [
        {"before": before, "after": after, "requests": times}
        for before, after, times in found.ended
    ]
    return asdict(found) | {"ended": ended}


def all_tables(
    sides: Sequence[Side], requests: Requests | None
) -> list[tuple[str, list[str], Rows]]:
    """(title, columns, rows) of every table that has rows."""
    labels = [side.label for side in sides]
    changed = ["change"] if len(sides) == 2 else []
    found = [
        ("Settings that differ", ["", *labels], _setting_rows(sides)),
        ("Figures", ["", *labels, *changed], _figure_rows(sides)),
    ]
    if requests is not None:
        title = f"Requests that changed most, of {requests.requests:,}"
        columns = ["request", "input", "hits", "hit ended by", "TTFT", "of it queue"]
        found.append((title, columns, [_request_row(one) for one in requests.most]))
        ended = [
            [_pair(_ended(before), _ended(after)), f"{times:,}"]
            for before, after, times in requests.ended
        ]
        found.append(("What ended a hit", ["before and after", "requests"], ended))
    return [one for one in found if one[2]]


def _setting_rows(sides: Sequence[Side]) -> Rows:
    return [
        [one.name if one.counts else f"({one.name})", *map(told_value, one.values)]
        for one in settings(sides)
    ]


def _figure_rows(sides: Sequence[Side]) -> Rows:
    rows = []
    for name, words, unit, values in figures(sides):
        rows.append(_row(words, values, unit))
        if name == "lost_rate":
            rows += [_row(f"  {reason_name(one)}", rates, "rate") for one, rates in lost(sides)]
    return rows


def _row(words: str, values: Sequence[float | None], unit: str) -> list[str]:
    changed = [change(values[0], values[1], unit)] if len(values) == 2 else []
    return [words, *(value(one, unit) for one in values), *changed]


def _request_row(one: Changed) -> list[str]:
    times = [
        "-" if pair is None else _pair(seconds(pair[0]), seconds(pair[1]))
        for pair in (one.ttft_s, one.queue_s)
    ]
    hits = _pair(f"{one.hit_tokens[0]:,}", f"{one.hit_tokens[1]:,}")
    ended = _pair(_ended(one.ended_by[0]), _ended(one.ended_by[1]))
    return [f"{one.request:,}", f"{one.input_tokens:,}", hits, ended, *times]


def _pair(before: str, after: str) -> str:
    return before if before == after else f"{before} to {after}"


def _ended(reason: str) -> str:
    return _ENDED.get(reason) or reason_name(reason)


def print_tables(
    sides: Sequence[Side], requests: Requests | None, stream: TextIO | None = None
) -> None:
    out = console(stream)
    for title, columns, rows in all_tables(sides, requests):
        made = table(title, *map(shown, columns))
        for row in rows:
            made.add_row(*map(shown, row))
        out.print(made)


def runs_table(sides: Sequence[Side]) -> tuple[str, list[str], Rows]:
    """(title, columns, rows) of what was compared."""
    rows = [[side.label, side.path, side.version, side.digest] for side in sides]
    return "What was compared", ["replay", "document", "version", "digest"], rows


def changed_requests(found: Requests) -> str:
    """A sentence about all requests."""
    share = percent((found.more + found.fewer) / found.requests)
    return (
        f"Of {found.requests:,} requests, {found.more:,} hit more and {found.fewer:,} hit less "
        f"({share} changed)."
    )
