"""The story of a violation: the last operations that concern a page, a node or a request.

Lives here: a bounded ring of events and outcomes, and its rendering. Adding an operation is cheap;
text is formatted only for a violation.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.types import Key

from .pages import PageShadow

KEEP, TELL = 4096, 16


def node(number: int) -> About:
    return About("node", number)


def request(number: int) -> About:
    return About("request", number)


def transfer(number: int) -> About:
    return About("transfer", number)


def page(shadow: PageShadow, number: int) -> About:
    return About("page", number, int(shadow.tier), shadow.name)


def pool(shadow: PageShadow) -> About:
    return About("pool", -1, int(shadow.tier), shadow.name)


def named_by(item: Any) -> list[About]:
    """The request and the transfer of an event or outcome."""
    named = ((kind, getattr(item, kind, None)) for kind in ("request", "transfer"))
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
        whom = [item for item in whom if item.kind != "pool"]
        for operation, event, outcomes, nodes in reversed(self._ring):
            if whom and not any(_concerns(item, backbone, event, outcomes, nodes) for item in whom):
                continue
            lines.extend(f"         -> {brief(item)}" for item in reversed(outcomes))
            lines.append(f"op {operation}: {brief(event)}")
            if sum(line.startswith("op ") for line in lines) >= TELL:
                break
        if whom:
            lines.append("about " + ", ".join(_named(item, backbone) for item in whom))
        return lines[::-1]


def last_event(story: Story, event: Event | None) -> list[str]:
    """The line for the last event given to the core; with its number, if it was not answered."""
    operation, answered = story.answered()
    if event is None:
        return []
    if event is answered:
        return [f"last operation: op {operation}"]
    return [f"last operation: op {operation + 1}, not answered: {brief(event)}"]


def _named(item: About, backbone: str) -> str:
    where = {0: "device ", 1: "host "}.get(item.tier, "")
    other = "" if item.component in ("", backbone) else f"{item.component} "
    return f"{where}{other}{item.kind} {item.number}"


def _concerns(
    value: About, backbone: str, event: Event, outcomes: Sequence[Outcome], nodes: tuple[int, ...]
) -> bool:
    if value.kind == "node":
        return value.number in nodes
    if value.kind == "page":
        return any(_has_page(item, value, backbone) for item in outcomes)
    return any(getattr(item, value.kind, None) == value.number for item in (event, *outcomes))


def _has_page(item: Any, value: About, backbone: str) -> bool:
    arrays: list[Any] = []
    if value.tier == 0:
        first = value.component == backbone
        arrays = [getattr(item, "table", None)] if first else list(getattr(item, "tables", ())[1:])
    if (
        getattr(item, "tier", None) == value.tier
        and getattr(item, "component", "") == value.component
    ):
        arrays.append(getattr(item, "pages", None))
    for copy in getattr(item, "copies", ()):
        if copy.component == value.component:
            loading = type(item).__name__ == "Load"
            arrays.append(copy.target if loading == (value.tier == 0) else copy.source)
    if value.tier == 0 and any(
        value.number in _slots(state, value) for state in getattr(item, "states", ())
    ):
        return True
    return any(isinstance(array, np.ndarray) and value.number in array for array in arrays)


def _slots(state: Any, item: About) -> tuple[int, ...]:
    if state.component != item.component:
        return ()
    checkpoints = (page for _, page in state.checkpoints)
    return (state.source, state.working, *state.checkpoint_slots, *checkpoints)


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
        shown = ", ".join(_short(item) for item in value[:3])
        return f"({shown}{', ...' if len(value) > 3 else ''})"
    return str(value)


def _run(pages: Any) -> str:
    shown = " ".join(str(value) for value in pages[:8].tolist())
    return f"[{shown}{f' ... {len(pages)} in all' if len(pages) > 8 else ''}]"
