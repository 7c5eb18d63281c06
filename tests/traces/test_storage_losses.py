"""A real store that dies, hangs or refuses under a replay: what the user is told, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache.storage.base import Address, Status, Storage, Value
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.verified import Verified
from tests.storage.memory_store import MemoryStore
from traces.replaying import config

from .rig import Capsys, Patch, document

Replayed = Callable[[], tuple[dict[str, Any], str, str]]
OPTIONS = ["--mode", "hits", "--device-pages", "60", "--host-pages", "60"]
OPTIONS += ["--prefetch", "wait_complete:0", "--storage", "file:pages"]


class Dying(MemoryStore):
    """It answers nothing from a look-up on, or takes no writes. looks: calls so far."""

    dies_at = -1
    refuses = False
    looks = 0

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        self.looks += 1
        if self.looks == self.dies_at:
            self.answer = Status.FAILED
        return super().lookup(keys)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        if self.refuses:
            return [Status.FULL] * len(keys)
        return super().write(keys, values)


@pytest.fixture
def store(monkeypatch: Patch) -> Dying:
    """What `--storage file:pages` opens, again and again."""
    found = Dying()

    def opened(address: Address, options: object, now: Any, notice: Any) -> Storage:
        never = replace(BreakerOptions(), first_pause_s=1e9)
        return Verified(Breaker(found, address.text, now, notice, never))

    monkeypatch.setattr(config, "open_store", opened)
    return found


@pytest.fixture
def replayed(turns: str, tmp_path: Path, capsys: Capsys) -> Replayed:
    """Replays a trace: its JSON, its report, and what it says to standard error."""

    def run() -> tuple[dict[str, Any], str, str]:
        found = document(tmp_path, "replay", turns, *OPTIONS)
        told = capsys.readouterr()
        return found, " ".join(told.out.split()), told.err

    return run


def test_a_store_that_dies_during_look_ups_is_blamed(store: Dying, replayed: Replayed) -> None:
    replayed()
    warm, out, err = replayed()
    assert warm["storage"]["losses"]["lookups_unanswered"] == 0
    assert "not done by storage" not in out
    assert err == ""
    store.dies_at = store.looks + 10
    dead, out, err = replayed()
    assert dead["whole"]["hit_tokens"]["storage"] < warm["whole"]["hit_tokens"]["storage"]
    losses = dead["storage"]["losses"]
    assert losses["outages"] == 1
    assert losses["lookups_unanswered"] > 0
    assert err.splitlines() == [
        "hicache: storage: file:pages does not answer (no answer); going on without it, and asking "
        "again now and then"
    ]
    assert f"lookups unanswered {losses['lookups_unanswered']:,}" in out
    assert "outages 1," in out


def test_a_store_that_takes_nothing_serves_what_it_has(store: Dying, replayed: Replayed) -> None:
    replayed()
    for key in list(store.values)[::2]:
        if not key.endswith("/context"):
            del store.values[key]
    store.refuses = True
    full, out, err = replayed()
    losses = full["storage"]["losses"]
    assert full["whole"]["hit_tokens"]["storage"] > 0
    assert (losses["outages"], losses["write_outages"]) == (0, 1)
    assert losses["lookups_unanswered"] == losses["reads_failed"] == 0
    assert losses["writes_refused"] > 0
    assert len(err.splitlines()) == 1
    assert "takes no writes (no room); what it has is read" in err
    assert f"writes refused {losses['writes_refused']:,}" in out
