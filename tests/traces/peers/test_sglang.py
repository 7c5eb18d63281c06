"""SGLang as a peer: what was found in it fails again, from kept tapes, and everything else holds.

Environments are made by `hicache peers fetch sglang==0.5.23` and so on; a tape whose
release has none is not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from hicache.core.errors import CallerError
from invariants.peers.tape import read
from tests.patience import PATIENCE_S
from traces.peers._folders import environment_of
from traces.peers._session import Session

TAPES = sorted((Path(__file__).parents[2] / "corpus/peers/sglang").glob("*.tape"))
NEWEST = "0.5.23"


class Opened(Protocol):
    def __call__(self, name: str) -> Session: ...


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Opens the process of a peer, once."""
    known: dict[str, Session] = {}
    with ExitStack() as stack:

        def one(name: str) -> Session:
            if name not in known:
                try:
                    environment = environment_of(name)
                except CallerError as error:
                    pytest.skip(str(error))
                known[name] = stack.enter_context(Session(environment))
                known[name].start()
            return known[name]

        yield one


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_what_was_found_fails_again(opened: Opened, path: Path) -> None:
    """The notes of a tape say which law it breaks."""
    tape = read(path)
    session = opened(f"{tape.peer}=={tape.release}")
    said = session.ask({"do": "play", "tape": path.read_text()}, PATIENCE_S)
    assert said["failure"] is not None
    assert said["failure"]["kind"] == tape.notes["kind"]


def fuzzed(session: Session, count: int, fixed: dict[str, Any]) -> tuple[list[Any], Any]:
    """The failures of sequences, and what they reached."""
    failures: list[Any] = []
    request = {"do": "fuzz", "seed": 0, "count": count, "length": 80, "fixed": fixed}
    said = session.ask(request, PATIENCE_S, failures.append)
    return [one["failure"] for one in failures if "failure" in one], said


@pytest.mark.parametrize("core", ["rust", "python"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba", "full+swa+mamba"])
def test_every_law_holds(opened: Opened, core: str, components: str) -> None:
    """Without KV events there is no failure in a few sequences."""
    fixed = {"core": core, "components": components, "events": False, "host": 30}
    failures, said = fuzzed(opened(f"sglang=={NEWEST}"), 6, fixed)
    assert failures == []
    for reached in ("hit on device", "hit on host", "load began", "backup began", "evict"):
        assert said["counts"][reached], reached
