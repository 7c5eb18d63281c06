"""LMCache as a peer: what was found in it fails again, from kept tapes, and everything else holds.

The environment is made by `hicache peers fetch lmcache==0.5.6`; without it nothing here runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from invariants.peers.tape import read
from tests.patience import PATIENCE_S
from traces.peers._folders import environment_of
from traces.peers._session import Session

RELEASE = "lmcache==0.5.6"
TAPES = sorted((Path(__file__).parents[2] / "corpus/peers/lmcache").glob("*.tape"))
QUIET: dict[str, Any] = dict.fromkeys(
    ("loses", "fails", "clears", "early", "ahead", "layerwise"), False
) | {"policy": "LRU", "hot": True}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    try:
        environment = environment_of(RELEASE)
    except CallerError as error:
        pytest.skip(str(error))
    with Session(environment) as found:
        found.start()
        yield found


@pytest.mark.parametrize("tape", TAPES, ids=lambda tape: tape.stem)
def test_what_was_found_fails_again(session: Session, tape: Path) -> None:
    """The notes of a tape say which law it breaks."""
    said = session.ask({"do": "play", "tape": tape.read_text()}, PATIENCE_S)
    assert said["failure"] is not None
    assert said["failure"]["kind"] == read(tape).notes["kind"]


@pytest.mark.parametrize("disk", [0, 3, 40])
def test_otherwise_every_law_holds(session: Session, disk: int) -> None:
    """One request at a time between its look-up and its load, and nothing fails."""
    failures: list[Any] = []
    request = {"do": "fuzz", "seed": 0, "count": 8, "length": 60, "fixed": QUIET | {"disk": disk}}
    said = session.ask(request, PATIENCE_S, failures.append)
    assert [one["failure"] for one in failures if "failure" in one] == []
    assert said["operations"] == 480
    assert said["counts"]["hit on host"] > 20
    assert disk < 40 or said["counts"]["hit on disk"]
