"""A timeline as the Perfetto UI reads it: events of one time in their order, what is still open on
a thread holds what comes next, and an arrow binds to the innermost slice. What that viewer drops
without a word fails here.

Must not live here: what a timeline has to show (test_timeline).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NamedTuple

from invariants.explain.recorder import Account
from traces.explaining.timeline import timeline


class Slice(NamedTuple):
    """As a viewer has it. depth: how many others of its row hold it."""

    row: str
    name: str
    start: float
    end: float
    args: dict[str, Any]
    depth: int


class Picture(NamedTuple):
    """rows: in the viewer's order. arrows: from slice to slice."""

    rows: list[str]
    slices: list[Slice]
    arrows: list[tuple[Slice, Slice]]
    counters: list[dict[str, Any]]

    def of(self, row: str) -> list[Slice]:
        """Those of a row and of its lanes."""
        return [one for one in self.slices if one.row.partition(",")[0] == row]


def written(account: Account) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads("".join(timeline(account)))["traceEvents"]
    return found


def imported(account: Account) -> Picture:
    """Fails where slices cut one another, or where an arrow has no beginning or no end."""
    names: dict[tuple[int, int], str] = {}
    open_: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    slices: list[Slice] = []
    left: dict[int, Slice] = {}
    arrows: list[tuple[Slice, Slice]] = []
    counters = []
    for one in written(account):
        thread = (one["pid"], one["tid"])
        if one["ph"] == "M":
            if one["name"] == "thread_name":
                names[thread] = one["args"]["name"]
            continue
        stack = open_[thread]
        while stack and stack[-1].end <= one["ts"]:
            stack.pop()
        if one["ph"] == "X":
            end = one["ts"] + one["dur"]
            assert not stack or end <= stack[-1].end, "cut"
            made = Slice(names[thread], one["name"], one["ts"], end, one["args"], len(stack))
            slices.append(made)
            stack.append(made)
        elif one["ph"] == "s":
            assert one["id"] not in left
            left[one["id"]] = stack[-1]
        elif one["ph"] == "f":
            arrows.append((left.pop(one["id"]), stack[-1]))
        else:
            counters.append(one)
    assert not left
    return Picture([names[thread] for thread in sorted(names)], slices, arrows, counters)
