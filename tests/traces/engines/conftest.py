"""Opens the processes of engines for tests, and plays sequences on them.

Engines are in .engines/PACKAGE-RELEASE, or what `make engines` installs.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.needs import PATIENCE_S
from traces.fuzzing.session import Session, constants, engine_of

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
        package = constants(engine).get("PACKAGE", engine)
        folders = ENGINES / f"{package}-{release}", *ENGINES.glob(f"{package}/lib/*/site-packages")
        for folder in folders:
            if (folder / package).is_dir():
                result = engine_of(engine, str(folder))
                if release in ("", result.release):
                    return Session(result)
        pytest.skip(f"{name} is not in {ENGINES}")


def fuzzed(
    session: Session, count: int, fixed: dict[str, Any], length: int = 80
) -> tuple[list[Any], Counter[str]]:
    """The failures of sequences, and what they reached."""
    request = {"do": "fuzz", "seed": 0, "count": count, "length": length, "fixed": fixed}
    lines = [*session.answers(request, PATIENCE_S)]
    counts = sum((Counter(line["counts"]) for line in lines), Counter[str]())
    return [line["failure"] for line in lines if line["failure"]], counts


def script_of(session: Session, sequence: str) -> str:
    """The engine's own calls in a sequence."""
    message = session.ask({"do": "explain", "sequence": sequence, "head": "head"}, PATIENCE_S)
    return str(message["script"])


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Opens the process of an engine, once."""
    with ExitStack() as stack:
        yield Opened(stack)
