"""Opens the processes of peers for tests, and plays sequences on them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from hicache.core.errors import CallerError
from tests.patience import PATIENCE_S
from traces.peers._folders import environment_of
from traces.peers._session import Session


class Opened:
    """The peers that are open, by name and release. One without an environment skips the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._known: dict[str, Session] = {}

    def __call__(self, name: str) -> Session:
        if name not in self._known:
            try:
                environment = environment_of(name)
            except CallerError as error:
                pytest.skip(str(error))
            self._known[name] = self._stack.enter_context(Session(environment))
            self._known[name].start()
        return self._known[name]


def fuzzed(
    session: Session, count: int, fixed: dict[str, Any], length: int = 80
) -> tuple[list[Any], Any]:
    """The failures of sequences, and what they reached."""
    failures: list[Any] = []
    request = {"do": "fuzz", "seed": 0, "count": count, "length": length, "fixed": fixed}
    said = session.ask(request, PATIENCE_S, failures.append)
    return [one["failure"] for one in failures if "failure" in one], said
