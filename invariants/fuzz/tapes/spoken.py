"""Describes an entry of a tape in one line."""

from __future__ import annotations

from .tape import Act, Entry


def spoken(entry: Entry) -> str:
    """Returns the operation, its arguments, and its unusual gaps, polls and replies."""
    words = [entry.op, *(f"{name}={value}" for name, value in entry.args.items())]
    words += [f"gap={entry.gap}"] * (entry.gap != 1) + ["no poll"] * (not entry.poll)
    words += ["replies: " + "; ".join(_reply(act) for act in entry.acts)] * bool(entry.acts)
    return " ".join(words)


def _reply(act: Act) -> str:
    return f"after {act.delay}{f', {act.fault}' if act.fault else ''}"
