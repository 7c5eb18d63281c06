"""The connector's two halves under a stand-in for vLLM: what is loaded is what was saved."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hicache.core.types import Key, Tier
from hicache.storage.base import Status
from hicache.vllm.groups import STATE, WINDOW, groups_of

from .engine import Request, cache_config
from .playing import KINDS, Playing, Setting, drawn, written


@pytest.fixture
def opened() -> Iterator[Callable[[Setting], Playing]]:
    """Opens engines, and closes them at the end."""
    found: list[Playing] = []

    def one(setting: Setting) -> Playing:
        found.append(Playing(setting))
        return found[-1]

    yield one
    for playing in found:
        playing.close()


Opened = Callable[[Setting], Playing]
PROMPT = [1, 2, 0] * 20


def hit(playing: Playing, prompt: list[int]) -> tuple[int, int]:
    """Tokens that vLLM had, and that were loaded."""
    request = playing.request(prompt)
    playing.settle()
    return playing.engine.hits[request.request_id]


@pytest.mark.parametrize("kinds", KINDS)
def test_what_vllm_has_lost_comes_from_host(opened: Opened, kinds: str) -> None:
    playing = opened(Setting(kinds))
    assert hit(playing, PROMPT) == (0, 0)
    playing.engine.pool.forget()
    local, loaded = hit(playing, PROMPT)
    assert local == 0
    assert loaded >= 48
    assert playing.decider.counts.host_tokens == loaded


@pytest.mark.parametrize("kinds", KINDS)
def test_after_a_restart_it_comes_from_storage(opened: Opened, kinds: str, tmp_path: Path) -> None:
    first = opened(Setting(kinds, store=tmp_path))
    hit(first, PROMPT)
    again = opened(Setting(kinds, store=tmp_path))
    local, loaded = hit(again, PROMPT)
    assert local == 0
    assert loaded >= 48
    assert again.decider.counts.storage_tokens == loaded


@pytest.mark.parametrize(
    ("kinds", "lost", "pages"),
    [
        ("state", ((STATE, 6), (STATE, 5)), 5),
        ("uneven", ((WINDOW, 6), (WINDOW, 4)), 4),
        ("all", ((STATE, 6), (WINDOW, 4)), 4),
    ],
)
def test_ranks_load_the_longest_prefix_that_all_can_restore(
    opened: Opened, kinds: str, lost: Sequence[tuple[str, int]], pages: int, tmp_path: Path
) -> None:
    """lost: by rank, the page that its store lacks. The first can restore 6 pages and not 7, the
    second 7 and not 6."""
    setting = Setting(kinds, store=tmp_path, ranks=2, chunk=8)
    hit(opened(setting), PROMPT)
    again = opened(setting)
    digests = Key.from_tokens(PROMPT, again.decider.groups.page).page_digests()
    for mover, (component, page) in zip(again.movers, lost, strict=True):
        assert mover._workers is not None
        workers = mover._workers
        for keys in workers.pages.keys(component, digests[page : page + 1]):
            assert workers.store.delete(keys) == [Status.DONE]
    assert hit(again, PROMPT) == (0, 8 * pages)


def test_a_load_that_was_promised_is_not_in_the_way_of_a_reset(opened: Opened) -> None:
    """It waits for blocks that a request has which the reset preempts."""
    playing = opened(Setting(blocks=22))
    engine, host = playing.engine, playing.decider.driver.core.view.pools(Tier.HOST)[0]
    hit(playing, PROMPT)
    engine.pool.forget()
    runs = playing.request([2] * 59, wanted=9)
    while runs.num_computed_tokens < 59:
        engine.step()
    waits = playing.request(PROMPT)
    engine.step()
    while engine.decider.busy:  # a pass while its blocks are saved might be its last
        engine.poll()
    assert engine.running == [runs]
    assert engine.waiting == [waits]
    asked = playing.decider._asked[waits.request_id]
    assert asked.load is not None
    assert engine.reset()
    assert host.free == host.capacity
    engine.end(runs)
    playing.settle()
    assert engine.hits[waits.request_id] == (0, 0)


@pytest.mark.parametrize("well", [True, False])
def test_what_another_connector_has_loaded_is_saved_when_the_request_ends(
    opened: Opened, well: bool
) -> None:
    """Before that its load may turn out to have failed."""
    playing = opened(Setting())
    decider, pool = playing.decider, playing.engine.pool
    request = Request("1", PROMPT, len(PROMPT), 1)
    blocks = [[pool.take() for _ in range(15)]]
    for at, one in enumerate(blocks[0]):
        one.block_hash, one.block_hash_num_tokens = at, 4 * at + 4
    assert decider.found(request, 0) == 0
    decider.given(request, blocks, 0)
    request.num_computed_tokens = 16
    decider.save(request, 60, blocks, all_of_it=True)
    request.num_computed_tokens = 60
    assert not decider.message().backups
    decider.ended(request, blocks, well)
    assert bool(decider.message().backups) == well


def test_of_a_page_in_part_the_other_part_is_counted_as_loaded(opened: Opened) -> None:
    decider = opened(Setting()).decider
    asked, half = SimpleNamespace(pages=2, fetched={0, 1}), decider.groups.page // 2
    assert [decider._fetched(asked, external) for external in (half, 3 * half)] == [half, 3 * half]


def test_a_salt_shares_nothing(opened: Opened) -> None:
    playing = opened(Setting())
    hit(playing, PROMPT)
    request = playing.request(PROMPT, salt="other")
    playing.settle()
    assert playing.engine.hits[request.request_id] == (0, 0)


def test_an_adapter_shares_nothing_but_with_itself(opened: Opened, tmp_path: Path) -> None:
    """Neither with one of the same name, nor what its files were, nor with another salt."""
    playing = opened(Setting(adapters=tmp_path, blocks=200, host_pages=200))
    loras = [written(tmp_path, number, random.Random(number)) for number in (2, 3)]
    loras[1] = replace(loras[1], lora_name=loras[0].lora_name)

    def hits(*, loaded: int) -> None:
        for lora in loras:
            for salt in (None, "salt"):
                request = playing.request(PROMPT, salt=salt, lora=lora)
                playing.settle()
                assert playing.engine.hits[request.request_id] == (0, loaded)

    for place, alpha in zip(loras, (16, 64), strict=True):
        (Path(place.lora_path) / "adapter_model.safetensors").write_text("a")
        (Path(place.lora_path) / "adapter_config.json").write_text(f'{{"lora_alpha": {alpha}}}')
    hits(loaded=0)
    playing.engine.pool.forget()
    hits(loaded=56)
    assert playing.engine.empty()
    for lora in loras:
        (Path(lora.lora_path) / "adapter_config.json").write_text('{"r": 8}')
        playing.worker.lora_manager.add_adapter(replace(lora, load_inplace=True))
    loras.pop()  # both are the same now
    hits(loaded=0)
    assert not playing.notices


def test_after_an_update_nothing_is_loaded_or_saved_until_vllm_has_emptied_its_cache(
    opened: Opened,
) -> None:
    playing = opened(Setting())
    hit(playing, PROMPT)
    playing.worker.reload_weights()
    assert hit(playing, PROMPT)[1] == 0
    [line] = playing.notices
    assert line.startswith("hicache: the weights were changed: storage is not used until")
    playing.engine.pool.forget()
    assert hit(playing, PROMPT) == (0, 0)
    assert playing.engine.empty()
    assert hit(playing, PROMPT) == (0, 0)
    playing.engine.pool.forget()
    assert hit(playing, PROMPT) == (0, 56)
    playing.worker.reload_weights()
    assert playing.engine.empty()
    assert hit(playing, PROMPT) == (0, 0)  # it was promised, and refused by the worker
    assert playing.engine.failed == 1
    assert playing.notices == [line]


def test_a_window_smaller_than_a_page_needs_the_last_blocks_of_it_alone(opened: Opened) -> None:
    """vLLM keeps no others, and gives none to a load."""
    playing = opened(Setting("small_window", window=4))
    hit(playing, PROMPT)
    playing.engine.pool.forget()
    assert hit(playing, PROMPT) == (0, 56)
    assert not playing.decider.counts.failed_loads


def test_a_draft_model_of_which_no_group_tells_is_known() -> None:
    """vLLM then drops the last block of every hit (kv_cache_coordinator.py), and so does this."""
    config = cache_config(KINDS["full"], 8, 0)
    for drops in (True, False):
        speculative = SimpleNamespace(use_eagle_block_drop=lambda drops=drops: drops)
        assert groups_of(config, speculative).drafts == drops
    assert not groups_of(config).drafts


def reached(
    opened: Opened,
    setting: Setting,
    what: Callable[[Playing], bool],
    resets: float = 0.0,
    changes: float = 0.0,
) -> None:
    """Play drawn sequences until one reaches what is asked. How copies and passes interleave is not
    drawn but happens, so no single sequence has to reach it."""
    for seed in range(8):
        playing = opened(setting)
        drawn(seed, playing, 40, resets, changes)
        if what(playing):
            return
    pytest.fail("not reached in 8 sequences")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("form", ["plain", "split", "planes"])
@pytest.mark.parametrize("kinds", KINDS)
def test_drawn_sequences(opened: Opened, kinds: str, form: str) -> None:
    def loaded(playing: Playing) -> bool:
        counts = playing.decider.counts
        assert counts.failed_loads == 0
        return counts.host_tokens > 0 and counts.saved_pages > 0

    reached(opened, Setting(kinds, form=form), loaded)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kinds", KINDS)
def test_drawn_sequences_with_resets(opened: Opened, kinds: str) -> None:
    def renewed(playing: Playing) -> bool:
        return playing.engine.weights > 0 and playing.decider.counts.host_tokens > 0

    reached(opened, Setting(kinds, blocks=45), renewed, resets=0.1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kinds", KINDS)
def test_drawn_sequences_whose_copies_fail(opened: Opened, kinds: str, tmp_path: Path) -> None:
    def failed(playing: Playing) -> bool:
        counts = playing.decider.counts
        assert playing.engine.failed <= counts.failed_loads
        return playing.engine.failed > 0 and counts.host_tokens > 0

    reached(opened, Setting(kinds, ranks=2, faults=0.1, store=tmp_path), failed)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kinds", KINDS)
def test_drawn_sequences_with_storage_and_two_ranks(
    opened: Opened, kinds: str, tmp_path: Path
) -> None:
    setting = Setting(kinds, store=tmp_path, ranks=2, host_pages=20)
    reached(opened, setting, lambda one: one.decider.counts.storage_tokens > 0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kinds", KINDS)
def test_short_of_blocks_requests_are_preempted(opened: Opened, kinds: str) -> None:
    blocks = 100 if kinds == "window" else 45
    setting = Setting(kinds, blocks=blocks, chunk=40)
    reached(opened, setting, lambda one: one.decider.counts.host_tokens > 0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kinds", KINDS)
def test_drawn_sequences_with_adapters_and_updates(
    opened: Opened, kinds: str, tmp_path: Path
) -> None:
    """Each begins with the store that the one before has left."""

    def changed(playing: Playing) -> bool:
        return playing.decider.counts.host_tokens > 0 and bool(playing.notices)

    setting = Setting(kinds, store=tmp_path / "kv", adapters=tmp_path / "adapters", ranks=2)
    reached(opened, setting, changed, changes=0.15)
