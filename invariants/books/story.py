"""The story of a violation: the last operations that concern a page, a node or a request.

Lives here: a bounded ring of events and outcomes, and its rendering. Adding an operation is cheap;
text is formatted only for a violation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.types import Key

from .pages import PageBook

KEEP, TELL = 4096, 16


def node(number: int) -> About:
    return About("node", number)


def request(number: int) -> About:
    return About("request", number)


def flight(number: int) -> About:
    return About("flight", number)


def page(book: PageBook, number: int) -> About:
    return About("page", number, int(book.tier), book.name)


def pool(book: PageBook) -> About:
    return About("pool", -1, int(book.tier), book.name)


def named_by(item: Any) -> list[About]:
    """The request and the flight of an event or outcome."""
    named = ((kind, getattr(item, kind, None)) for kind in ("request", "flight"))
    return [About(kind, number) for kind, number in named if number is not None]


class Story:
    """A ring of (operation, event, outcomes, ids of touched nodes)."""

    def __init__(self, keep: int = KEEP) -> None:
        self._ring: deque[tuple[int, Event, Sequence[Outcome], tuple[int, ...]]] = deque(
            maxlen=keep
        )

    def answered(self) -> tuple[int, Event | None]:
        """The last operation: its number and its event."""
        return self._ring[-1][:2] if self._ring else (0, None)

    def add(
        self, operation: int, event: Event, outcomes: Sequence[Outcome], nodes: tuple[int, ...]
    ) -> None:
        self._ring.append((operation, event, outcomes, nodes))

    def about(self, whom: Sequence[About], backbone: str) -> list[str]:
        """Returns the last operations that concern any of `whom`, or simply the last ones if it
        names only pools. backbone: name of the first component.
        """
        lines: list[str] = []
        whom = [one for one in whom if one.kind != "pool"]
        for operation, event, outcomes, nodes in reversed(self._ring):
            if whom and not any(_concerns(one, backbone, event, outcomes, nodes) for one in whom):
                continue
            lines.extend(f"         -> {brief(item)}" for item in reversed(outcomes))
            lines.append(f"op {operation}: {brief(event)}")
            if sum(line.startswith("op ") for line in lines) >= TELL:
                break
        if whom:
            lines.append("about " + ", ".join(_named(one, backbone) for one in whom))
        return lines[::-1]


def last_event(story: Story, event: Event | None) -> list[str]:
    """The line for the last event given to the core; with its number, if it was not answered."""
    operation, answered = story.answered()
    if event is None:
        return []
    if event is answered:
        return [f"last operation: op {operation}"]
    return [f"last operation: op {operation + 1}, not answered: {brief(event)}"]


def _named(one: About, backbone: str) -> str:
    where = {0: "device ", 1: "host "}.get(one.tier, "")
    other = "" if one.component in ("", backbone) else f"{one.component} "
    return f"{where}{other}{one.kind} {one.number}"


def _concerns(
    one: About, backbone: str, event: Event, outcomes: Sequence[Outcome], nodes: tuple[int, ...]
) -> bool:
    if one.kind == "node":
        return one.number in nodes
    if one.kind == "page":
        return any(_has_page(item, one, backbone) for item in outcomes)
    return any(getattr(item, one.kind, None) == one.number for item in (event, *outcomes))


def _has_page(item: Any, one: About, backbone: str) -> bool:
    arrays: list[Any] = []
    if one.tier == 0:
        first = one.component == backbone
        arrays = [getattr(item, "table", None)] if first else list(_tables(item)[1:])
    if getattr(item, "tier", None) == one.tier and getattr(item, "component", "") == one.component:
        arrays.append(getattr(item, "pages", None))
    for copy in getattr(item, "copies", ()):
        if copy.component == one.component:
            loading = type(item).__name__ == "Load"
            arrays.append(copy.target if loading == (one.tier == 0) else copy.source)
    if one.tier == 0 and any(one.number in _slots(state, one) for state in _states(item)):
        return True
    return any(isinstance(array, np.ndarray) and one.number in array for array in arrays)


def _tables(item: Any) -> tuple[Any, ...]:
    return getattr(item, "tables", ())


def _states(item: Any) -> tuple[Any, ...]:
    return getattr(item, "states", ())


def _slots(state: Any, one: About) -> tuple[int, ...]:
    if state.component != one.component:
        return ()
    marks = (page for _, page in state.checkpoints)
    return (state.source, state.working, *state.checkpoint_slots, *marks)


def brief(item: Any) -> str:
    """An event or outcome on one line, with arrays and keys shortened."""
    fields = ", ".join(
        f"{name}={_short(value)}" for name, value in zip(item._fields, item, strict=True)
    )
    return f"{type(item).__name__}({fields})"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _run(value)
    if isinstance(value, bytes):
        return f"{len(value)}B"
    if isinstance(value, Key):
        space = f", {value.namespace!r}" if value.namespace else ""
        return f"Key({value.pages} pages{space})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return brief(value)
    if isinstance(value, tuple):
        shown = ", ".join(_short(one) for one in value[:3])
        return f"({shown}{', ...' if len(value) > 3 else ''})"
    return str(value)


def _run(pages: Any) -> str:
    shown = " ".join(str(value) for value in pages[:8].tolist())
    return f"[{shown}{f' ... {len(pages)} in all' if len(pages) > 8 else ''}]"
