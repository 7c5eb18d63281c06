"""The interface of an action of `hicache store`. It is that of a command."""

from __future__ import annotations

from typing import Any, Protocol, cast

from hicache import registry

from ..terminal.options import OptionRecord

ACTIONS = "traces.storing"


class Action(Protocol):
    """A module of this folder."""

    SUMMARY: str
    Options: type[OptionRecord]

    def run(self, options: Any, command: str) -> int:
        """Runs the action and returns its exit code."""


def load(name: str) -> Action:
    """Raises CallerError for an unknown name."""
    return cast(Action, registry.load(ACTIONS, name))
