"""Stored sequences replay exactly: one that fails tells the very failure again, and is shrunk."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from hicache.core.actions import Evicted, Outcome
from hicache.core.core import Core
from hicache.core.events import BackupDone, Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.encoding import Decisions
from invariants.fuzz import sequence as corpus
from invariants.fuzz.hicache.play import replay
from invariants.fuzz.sequence import read
from invariants.fuzz.shrink import WAYS, Search
from traces.cli import main

from .playing import GOLDEN, HERE

CORPUS = HERE.parent / "corpus"


def believes(handle: Any, core: Core, event: Any) -> list[Any]:
    """A backup that failed counts as done."""
    return handle(core, event._replace(ok=True) if isinstance(event, BackupDone) else event)


def silent(handle: Any, core: Core, event: Any) -> list[Any]:
    """The first eviction of an event is not told."""
    result = handle(core, event)
    at = next((at for at, item in enumerate(result) if isinstance(item, Evicted)), -1)
    return result if at < 0 else result[:at] + result[at + 1 :]


BUGS = {"a-failed-backup-is-believed": believes, "an-eviction-is-not-told": silent}


@contextmanager
def buggy(name: str) -> Iterator[None]:
    """Every core has the bug that this sequence found."""
    handle, wrong = Core.handle, BUGS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Core, "handle", lambda core, event: wrong(handle, core, event))
        yield


def path_of(name: str) -> str:
    return str(HERE / "sequences" / f"{name}.jsonl")


def played(path: str, out: Path) -> list[Any]:
    """The exit code, and the failure: its code, its kind and the operation at which it showed."""
    code = main(["fuzz", "--replay", path, "--json", str(out)])
    document = json.loads(out.read_text())
    failure = document["failure"]
    message = [failure[key] for key in ("code", "kind", "at")] if failure else []
    return [code, *message, document["events"]]


@pytest.mark.parametrize("name", BUGS)
def test_a_failing_sequence_fails_the_same_way_each_time(name: str, tmp_path: Path) -> None:
    with buggy(name):
        result = [played(path_of(name), tmp_path / "out.json") for _ in range(2)]
    assert result == [GOLDEN["failures"][name]] * 2
    assert played(path_of(name), tmp_path / "out.json")[0] == 0, "without the bug"


def test_a_failing_sequence_is_shrunk_to_one_operation() -> None:
    sequence = read(path_of("an-eviction-is-not-told"))
    with buggy("an-eviction-is-not-told"):
        failure = replay(sequence).failure
        small = Search(sequence, failure, replay, WAYS).run()
    assert len(sequence.entries) == 21
    assert [entry.op for entry in small.sequence.entries] == GOLDEN["shrunk"]
    assert (small.failure.code, small.failure.kind) == (11, "SPEC Evicted")
    assert replay(small.sequence).failure is None, "without the bug"


@pytest.mark.parametrize("stem", GOLDEN["corpus"])
def test_a_stored_sequence_is_clean_and_has_as_many_events(stem: str, tmp_path: Path) -> None:
    assert played(str(CORPUS / f"{stem}.jsonl"), tmp_path / "out.json") == GOLDEN["corpus"][stem]


class Record:
    """Observes one core. digest: of its outcomes, pools and ticks so far."""

    def __init__(self) -> None:
        self._decisions = Decisions()
        self._pools = blake2b(digest_size=16)

    def on_event(self, event: Event, view: CoreView) -> None: ...

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self._decisions.add(outcomes)
        left = [
            (*pool.counts, pool.protected)
            for tier in (Tier.DEVICE, Tier.HOST)
            for pool in view.pools(tier)
        ]
        self._pools.update(repr((left, view.tick)).encode())

    def digest(self) -> str:
        both = self._decisions.digest() + self._pools.hexdigest()
        return blake2b(both.encode(), digest_size=16).hexdigest()


def decided(path: Path) -> str:
    record = Record()
    replay(corpus.read(path), "off", follow=lambda player: player.observe(record))
    return record.digest()


RECORDED = sorted((CORPUS / "decisions").glob("*.jsonl"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_core_decides_as_recorded(path: Path) -> None:
    assert decided(path) == corpus.read(path).notes["decisions"]
