"""Sequences on a simulated device: clean on the real code, deterministic, and they see what is
wrong with the transfer controller, which replies alone cannot show."""

from dataclasses import replace

import numpy as np
import pytest

from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.types import Tier
from hicache.runtime.controller import TransferQueue
from invariants.fuzz.hicache.device import DevicePlayer, player_of
from invariants.fuzz.hicache.draw import sample_config
from invariants.fuzz.hicache.play import failure_of, generate, replay, step
from invariants.fuzz.play import Failure, Played
from invariants.fuzz.sequence import Act, Entry, FuzzSequence
from sim.errors import WrongBytesError

DEVICE = "device:2:4:2:2"
TIERS = (Tier.DEVICE, Tier.HOST)


def played(seed: int, operations: int = 60) -> Played:
    return generate(sample_config(seed, executor="device"), operations)


def answered(outcome: Played) -> tuple[object, ...]:
    """What two runs share that did the same."""
    player = outcome.player
    assert isinstance(player, DevicePlayer)
    memory, names = player.memory, player.config.components
    digests = [memory.digest((tier, name), 0) for tier in TIERS for name in names]
    counts = {name: n for name, n in player.counts.items() if not name.startswith("op ")}
    return outcome.failure, player.now, player.events, counts, +player.probes.seen, digests


def test_sequences_are_clean() -> None:
    for seed in range(5):
        outcome = played(seed)
        assert outcome.failure is None, outcome.failure.text


def test_an_entry_that_does_nothing_changes_nothing() -> None:
    first = played(5)
    idle = Entry("match", {"request": 1 << 19}, 0, False, (Act(700, 3, "fail"),))
    for at in (0, 7, 20, 40):
        entries = (*first.sequence.entries[:at], idle, idle, *first.sequence.entries[at:])
        assert answered(replay(replace(first.sequence, entries=entries))) == answered(first)


def test_the_device_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = played(5)

    def drawn(*_: object) -> int:
        raise AssertionError("a draw that is not in the sequence")

    monkeypatch.setattr("sim.device.simulated.draw", drawn)
    assert answered(played(5)) == answered(first)


# -- what is looked at


def rested() -> DevicePlayer:
    """After a prompt was computed, backed up, evicted and loaded."""
    prompt = {"tokens": [[0, 2], [1, 2], [2, 2]], "space": "", "whole": False}
    entries = (
        Entry("arrive", {"request": 0, **prompt}),
        Entry("admit", {"request": 0, "chunk": 9}),
        Entry("quiesce", {}),
        Entry("evict", {"tier": 0, "component": "full", "pages": 99}),
        Entry("arrive", {"request": 1, **prompt}),
        Entry("admit", {"request": 1, "chunk": 9}),
        Entry("quiesce", {}),
    )
    player = player_of(FuzzSequence(Config(2, (8,), (8,)), entries, executor=DEVICE))
    for entry in entries:
        step(player, entry)
    assert isinstance(player, DevicePlayer)
    assert player.core.view.pool(Tier.HOST).counts[2] == 3
    return player


def spoil(player: DevicePlayer, tier: Tier, page: int) -> None:
    """Behind everybody's back."""
    rows = np.array([page])
    player.memory.write((tier, "full"), rows, np.array([7], dtype=np.uint64), (0, 2), "a test")


@pytest.mark.parametrize("tier", TIERS)
def test_at_rest_every_page_matches_its_prefix(tier: Tier) -> None:
    player = rested()
    player.at_rest()
    node = next(iter(player.core.view.nodes()))
    pages = node.pages[tier][0]
    assert pages is not None
    spoil(player, tier, int(pages[0]))
    words = "expected the content of its prefix, found other bytes;"
    with pytest.raises(WrongBytesError, match=f"{tier.name.lower()} page .*{words}"):
        player.at_rest()


@pytest.mark.parametrize("tier", TIERS)
def test_at_rest_free_pages_are_unchanged(tier: Tier) -> None:
    player = rested()
    pool = player.core.view.pool(tier)
    free = next(page for page in range(8) if pool.state[page] == 0)
    spoil(player, tier, free)
    with pytest.raises(WrongBytesError, match="was written while it was free") as result:
        player.at_rest()
    about = (About("page", free, int(tier), "full"),)
    assert failure_of(result.value, 3) == Failure(12, "POISON", str(result.value), 3, about)


def test_a_controller_that_never_answers_is_a_failure_of_liveness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TransferQueue, "ended", lambda self: [])
    failure = next(result for seed in range(9) if (result := played(seed).failure) is not None)
    assert (failure.code, failure.kind) == (14, "LIVENESS")
    assert "nothing is going to happen" in failure.text
