"""Opens the processes of engines for tests, and plays sequences on them.

Engines are in .engines/PACKAGE-RELEASE (see docs/peers.md), or what `make engines` installs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz import facts
from tests.patience import PATIENCE_S
from traces.peers.session import Session, engine_of

ENGINES = Path(__file__).parents[3] / ".engines"


class Opened:
    """The engines that are open, by name and release. One that is not installed skips the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._known: dict[str, Session] = {}

    def __call__(self, name: str) -> Session:
        if name not in self._known:
            self._known[name] = self._stack.enter_context(self._session(name))
            self._known[name].start()
        return self._known[name]

    def _session(self, name: str) -> Session:
        engine, _, release = name.partition("==")
        package = facts.read(facts.engines()[engine]).package
        folders = ENGINES / f"{package}-{release}", *ENGINES.glob(f"{package}/lib/*/site-packages")
        for folder in folders:
            if (folder / package).is_dir():
                found = engine_of(engine, str(folder))
                if release in ("", found.release):
                    return Session(found)
        pytest.skip(f"{name} is not in {ENGINES}")


def fuzzed(
    session: Session, count: int, fixed: dict[str, Any], length: int = 80
) -> tuple[list[Any], Any]:
    """The failures of sequences, and what they reached."""
    failures: list[Any] = []
    request = {"do": "fuzz", "seed": 0, "count": count, "length": length, "fixed": fixed}
    said = session.ask(request, PATIENCE_S, failures.append)
    return [one["failure"] for one in failures if "failure" in one], said


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Opens the process of a peer, once."""
    with ExitStack() as stack:
        yield Opened(stack)
