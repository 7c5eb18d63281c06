"""Tapes with a model: clean on the real code, the same twice, and they see what is wrong in a page
that nobody else looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from hicache.core.actions import Backup, Load
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.transformers.moving import PagedRows
from invariants.base import WRONG_BYTES
from invariants.fuzz import simpler
from invariants.fuzz.executors import ModelSettings, model_of, settings_of
from invariants.fuzz.ranks.hand import hand_of as made_of
from invariants.fuzz.shrink import shrink
from invariants.fuzz.tapes import tape as tapes
from invariants.prove.memory import Memory
from invariants.prove.shelf import StoredShelf
from tests.invariants.prove.played import LLAMA, STATES, again, drawn, hand_of, said

WAYS = ("device", "host", "storage", "states", "restarts", "stored", "fetched")
FAR = 1e4  # bounds: a wrong page is orders of magnitude beyond rounding


@pytest.mark.one_in(64)
@pytest.mark.parametrize("settings", [LLAMA, STATES], ids=lambda one: one.family)
def test_a_sequence_is_clean_and_a_tape_of_it_does_the_same(settings: ModelSettings) -> None:
    outcome = drawn(settings, 8, 50)
    assert outcome.failure is None
    hand = hand_of(outcome)
    assert hand.paths["passes"] > 20
    assert hand.figures().bounds < 10
    tape = tapes.loads(tapes.dumps(outcome.tape))
    assert tape.executor == settings.executor
    assert said(again(tape)) == said(outcome)


@pytest.mark.one_in(8)
def test_every_way_to_a_page_is_taken_in_a_few_sequences() -> None:
    taken: Counter[str] = Counter()
    for seed in range(1, 20):
        hand = hand_of(drawn(STATES, seed, 40))
        taken += hand.paths + Counter(stored=hand.stored.stored, fetched=hand.stored.fetched)
        if all(taken[name] for name in WAYS):
            return
    pytest.fail(f"taken so far: {taken}")


def swapped(patch: pytest.MonkeyPatch) -> None:
    """The first two pages of a load come into each other's places, once they are there."""
    finish = Memory.finish

    def crossed(self: Memory, action: Load | Backup) -> None:
        known = action.flight in self.moved
        finish(self, action)
        for copy in action.copies if isinstance(action, Load) and not known else ():
            for pool in self.arena.pools(Tier.DEVICE, copy.component):
                if len(copy.target) > 1:
                    pool.view[:, copy.target[:2]] = pool.view[:, copy.target[1::-1]]

    patch.setattr(Memory, "finish", crossed)


def overwritten(patch: pytest.MonkeyPatch) -> None:
    """Writing the rows of a pass leaves out its last page's last layer."""
    write = PagedRows.write

    def short(
        self: PagedRows, layer: object, one: object, pages: object, first: int, rows: object
    ) -> None:
        write(self, layer, one, pages, first, rows[: len(rows) - 1])  # type: ignore[arg-type, index]

    patch.setattr(PagedRows, "write", short)


def mixed_up(patch: pytest.MonkeyPatch) -> None:
    """A fetch fills its host pages in the other order."""
    fetched = StoredShelf._fetched

    def turned(self: StoredShelf, action: object, content: object) -> int:
        arrived = fetched(self, action, content)  # type: ignore[arg-type]
        for piece in action.pieces:  # type: ignore[attr-defined]
            for pool in self._memory.arena.pools(Tier.HOST, piece.component):
                pool.view[:, piece.pages] = pool.view[:, piece.pages[::-1]]
        return arrived

    patch.setattr(StoredShelf, "_fetched", turned)


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("plant", "seed"), [(swapped, 46), (overwritten, 2), (mixed_up, 10)])
def test_a_wrong_page_is_far_beyond_the_bound(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for number in range(seed, seed + 40):
        failure = (outcome := drawn(LLAMA, number, 60, faults=False)).failure
        if failure is not None:
            break
    assert failure is not None
    assert (failure.code, failure.kind) == (WRONG_BYTES, "LOGITS llama")
    assert [one.kind for one in failure.about] == ["request", "page"]
    assert "is wrong in pool kv" in failure.text
    told = failure.text.split(" times the bound")[0].rsplit(" ", 1)[1]
    assert float(told) > FAR, failure.text
    assert said(again(outcome.tape)) == said(outcome)


def unwaited(patch: pytest.MonkeyPatch) -> None:
    """A pass does not wait for the layers that it reads, and its loads come as late as they may."""
    start, wait = Memory.start, Memory.wait

    def late(self: Memory, kind: type[Load | Backup]) -> None:
        start(self)
        wait(self, kind)

    patch.setattr(Memory, "start", lambda _: None)
    patch.setattr(Memory, "wait", late)
    patch.setattr(Memory, "arriving", lambda *_: lambda layer: None)


@pytest.mark.one_in(8)
def test_a_pass_that_reads_before_its_loads_have_come_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unwaited(monkeypatch)
    outcomes = (drawn(LLAMA, seed, 60, faults=False) for seed in range(5, 45))
    failure = next(one.failure for one in outcomes if one.failure is not None)
    assert failure.kind == "LOGITS llama"
    assert "prefill" in failure.text


@pytest.mark.one_in(64)
@pytest.mark.parametrize("settings", [LLAMA, STATES], ids=lambda one: one.family)
def test_free_pages_are_garbage(settings: ModelSettings) -> None:
    """So that a request reads none of them without being seen, even if it was there once."""
    used = 0
    for seed in (2, 8):
        hand = hand_of(drawn(settings, seed, 40, faults=False))
        for tier in (Tier.DEVICE, Tier.HOST):
            for ledger in hand.core.view.pools(tier):
                free = ledger.free_pages()
                used += int((ledger.generation[free] > 0).sum())
                for pool in hand.memory.arena.pools(tier, ledger.component):
                    rows = pool.view[:, free]
                    values = rows.view("u1")
                    assert ((values == 0xFF) | (values == 0x3F)).all(), (tier, pool.plan.pool.name)
    assert used > 10


@pytest.mark.one_in(8)
def test_shrink_makes_a_planted_failure_small(monkeypatch: pytest.MonkeyPatch) -> None:
    overwritten(monkeypatch)
    outcome = next(
        one for one in (drawn(LLAMA, seed, 30, False) for seed in range(9)) if one.failure
    )
    assert outcome.failure is not None
    shrunk = shrink(outcome.tape, outcome.failure, again, 60)
    assert len(shrunk.tape.entries) <= 4
    assert shrunk.tape.executor == outcome.tape.executor
    assert again(shrunk.tape).failure is not None


@pytest.mark.one_in(64)
def test_a_tape_names_a_model_that_there_is() -> None:
    tape = drawn(LLAMA, 1, 3).tape
    assert settings_of(tape.executor) is None
    assert model_of(tape.executor) == LLAMA
    assert list(simpler.executors(tape)) == []
    for executor, message in (
        ("model:alpaca:fp32:eager", "family: expected one of deepseek-v3, .*, found 'alpaca'"),
        ("model:llama:fp8:eager", "dtype of llama: expected one of fp32, bf16, fp16, found 'fp8'"),
        ("model:mamba2:fp32:sdpa", "attention of mamba2: expected one of eager, found 'sdpa'"),
        ("model:mamba2:fp32:eager", "expected the components full, mamba, found full"),
    ):
        with pytest.raises(CallerError, match=message):
            made_of(replace(tape, executor=executor))
    for executor in ("model", "model:llama", "model:llama:fp32:eager:1", "model:::"):
        with pytest.raises(CallerError, match="executor: expected replies, or "):
            settings_of(executor)
