"""The connector's two halves under a stand-in for vLLM: what is loaded is what was saved."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hicache.core.events import Event, LoadDone
from hicache.core.view import CoreView
from hicache.storage.changes import after
from hicache.vllm.groups import groups_of
from invariants import production
from invariants.production import Production, replay

from ..invariants.test_production import plant
from .engine import CLASSES, Lora, Request, cache_config
from .playing import KINDS, Playing, Setting, drawn, written


@pytest.fixture
def opened() -> Iterator[Callable[[Setting], Playing]]:
    """Opens engines, and closes them at the end."""
    result: list[Playing] = []

    def single(setting: Setting) -> Playing:
        result.append(Playing(setting))
        return result[-1]

    yield single
    for playing in result:
        playing.close()


Opened = Callable[[Setting], Playing]
PROMPT = [1, 2, 0] * 20


def hit(playing: Playing, prompt: list[int], lora: Lora | None = None) -> tuple[int, int]:
    """Tokens that vLLM had, and that were loaded."""
    request = playing.request(prompt, lora=lora)
    playing.settle()
    return playing.engine.hits[request.request_id]


def test_a_salt_that_no_key_can_have_is_not_kept(opened: Opened) -> None:
    playing = opened(Setting())
    for salt in ("\ud800", "a salt"):
        for _ in range(2):
            playing.request(PROMPT, salt=salt)
            playing.settle()
        assert playing.scheduler.remembered == 0
        assert bool(playing.scheduler.counts["saved_pages"]) == (salt == "a salt")


@pytest.mark.parametrize("chunk", [8, 64])
@pytest.mark.parametrize(("kinds", "host"), [("full", 2), ("full", 9), ("window", 2), ("state", 2)])
def test_pages_are_saved_or_unsaved(opened: Opened, kinds: str, host: int, chunk: int) -> None:
    playing = opened(Setting(kinds, host_pages=host, chunk=chunk))
    hit(playing, PROMPT)
    counts, pages = playing.scheduler.counts, len(PROMPT) // playing.scheduler.groups.page
    assert counts["saved_pages"] + counts["unsaved_pages"] == pages
    assert bool(counts["unsaved_pages"]) == (host < pages)


def begun(playing: Playing, name: str, local: Sequence[Any], external: int) -> Request:
    """A request of 60 tokens in its first pass; its last are its own. local, external: blocks that
    vLLM had, and tokens that another connector has loaded."""
    prompt = PROMPT[: 4 * len(local)] + [int(name)] * (60 - 4 * len(local))
    scheduler, request = playing.scheduler, Request(name, prompt, len(prompt), 1)
    blocks = [*local] + [playing.engine.pool.take() for _ in range(15 - len(local))]
    for at, block in enumerate(blocks):
        block.block_hash, block.block_hash_num_tokens = block.block_hash or (name, at), 4 * at + 4
    request.blocks = [blocks]
    assert scheduler.matched_tokens(request, 4 * len(local)) == 0
    scheduler.after_alloc(request, request.blocks, 0)
    request.num_computed_tokens = 4 * len(local) + external
    passed(playing, request)
    return request


def passed(playing: Playing, request: Request) -> None:
    """Another step, as vLLM's `build_connector_meta`: it may not know yet how the last one went."""
    playing.scheduler.save(request, 60, request.blocks, all_of_it=True)
    request.num_computed_tokens = 60


def test_a_save_for_which_the_core_has_no_device_page_leaves_nothing(opened: Opened) -> None:
    """Those of the saves before it are used while their copies are under way."""
    playing = opened(Setting(blocks=600, host_pages=600))
    for number in range(35):
        begun(playing, str(number), [], 0)
    assert playing.scheduler.counts["unsaved_pages"]
    assert not playing.scheduler.driver.core.view.requests


@pytest.mark.parametrize("well", [True, False])
def test_what_another_connector_has_loaded_is_saved_when_the_request_ends(
    opened: Opened, well: bool
) -> None:
    """Before that its load may turn out to have failed."""
    playing = opened(Setting())
    scheduler, request = playing.scheduler, begun(playing, "1", [], 16)
    assert not scheduler.message().backups
    scheduler.ended(request, request.blocks, well)
    assert bool(scheduler.message().backups) == well


@pytest.mark.parametrize("when", ["this step", "the next step", "aborted"])
def test_who_shares_what_another_connector_has_loaded_is_saved_after_a_token(
    opened: Opened, when: str
) -> None:
    """vLLM drops the token of a pass if what it read was not loaded, and hears that after the
    pass: if scheduling is asynchronous, after the next one has begun."""
    playing = opened(Setting(host_pages=60))
    scheduler, first = playing.scheduler, begun(playing, "1", [], 16)
    if when != "this step":
        assert not scheduler.message().backups
        passed(playing, first)
    if when == "aborted":
        scheduler.ended(first, first.blocks, well=False)
    other = begun(playing, "2", first.blocks[0][:4], 0)
    last = begun(playing, "3", other.blocks[0][:8], 0)
    assert not scheduler.message().backups
    begun(playing, "4", [], 0)
    assert scheduler.message().backups, "it shares nothing"
    passed(playing, other)
    assert not scheduler.message().backups
    other.all_token_ids.append(1)
    passed(playing, other)
    assert scheduler.message().backups
    scheduler.ended(last, last.blocks, well=False)
    begun(playing, "5", other.blocks[0][:4], 0)
    assert scheduler.message().backups, "it is known to be right"


def test_of_a_page_in_part_the_other_part_is_counted_as_loaded(opened: Opened) -> None:
    scheduler = opened(Setting()).scheduler
    requested, half = SimpleNamespace(pages=2, fetched={0, 1}), scheduler.groups.page // 2
    assert [scheduler._fetched(requested, external) for external in (half, 3 * half)] == [
        half,
        3 * half,
    ]


def test_a_prompt_that_is_looked_up_again_waits_no_longer(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a save of pages that vLLM has lost."""
    scheduler = (playing := opened(Setting())).scheduler
    request = Request("2", begun(playing, "1", [], 0).all_token_ids, 60, 1)
    for now, tokens in ((0.0, None), (4.0, None), (6.0, 0)):
        monkeypatch.setattr(scheduler, "_now", lambda now=now: now)
        assert scheduler.matched_tokens(request, 0) == tokens
        scheduler._changes += 1  # another save has ended


def test_a_load_that_finds_no_blocks_leaves_nothing(opened: Opened) -> None:
    playing = opened(Setting())
    hit(playing, PROMPT)
    scheduler, request = playing.scheduler, Request("late", PROMPT, len(PROMPT), 1)
    assert scheduler.matched_tokens(request, 0) == 56
    assert not scheduler.after_alloc(request, [[]], 56)
    assert scheduler.message().failed == {"late"}
    assert scheduler.matched_tokens(request, 0) == 0
    scheduler.ended(request, [[]])
    assert not scheduler.driver.core.view.requests
    assert not scheduler.remembered


def test_after_an_update_nothing_is_loaded_or_saved(opened: Opened) -> None:
    """Also if nobody tells of it, and a load was promised before: the worker refuses it. One that
    is under way fails."""
    for when in ("told", "not told", "while it loads"):
        playing = opened(Setting())
        hit(playing, PROMPT)
        playing.engine.pool.forget()
        assert hit(playing, PROMPT) == (0, 56)
        change = playing.worker.write if when == "not told" else playing.worker.reload_weights
        if when == "while it loads":
            after(playing.workers[0], "load", lambda *_, change=change: change())
        else:
            change()
        assert playing.engine.empty()
        assert hit(playing, PROMPT) == (0, 0)
        assert playing.engine.failed == 1
        [line] = playing.notices
        assert line.startswith("hicache: the weights were changed: nothing is loaded or saved")
        for _ in range(2):
            playing.engine.pool.forget()
            assert hit(playing, PROMPT) == (0, 0)


@pytest.mark.parametrize("bug", ["order", "crash"])
def test_after_a_failed_check_vllm_goes_on_without_the_cache(
    opened: Opened, bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass has what it reads, no block is lost, and loads under way are computed."""
    monkeypatch.setattr(production, "SHARE", 1e9)
    playing = opened(Setting(blocks=40, host_pages=20, check=("sampled", str(tmp_path))))
    drawn(1, playing, 10)
    assert not playing.notices
    plant(monkeypatch, bug)
    drawn(2, playing, 60)
    assert playing.scheduler.driver.detached
    [line] = playing.notices
    assert line.startswith("hicache: a check has failed, the cache is not used any more: ")
    [path] = tmp_path.iterdir()
    assert f"\n{replay('file', path.read_text())[1]}\nstory:" in line
    for _ in range(2):
        playing.engine.pool.forget()
        assert hit(playing, PROMPT) == (0, 0)
    assert playing.scheduler.reset()


def test_a_load_under_way_when_a_check_fails_is_computed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Production, event: Event, view: CoreView) -> None:
        assert not isinstance(event, LoadDone)

    playing = opened(Setting(check=("sampled", "")))
    hit(playing, PROMPT)
    playing.engine.pool.forget()
    monkeypatch.setattr(Production, "on_event", fail)
    assert hit(playing, PROMPT) == (0, 0)
    assert (playing.engine.failed, len(playing.notices)) == (1, 1)


@pytest.mark.parametrize("window", [5, 6])
def test_a_window_smaller_than_a_page_needs_its_last_blocks(opened: Opened, window: int) -> None:
    """vLLM keeps no others, and gives none to a load. With 6 the first is read for one token."""
    playing = opened(Setting("small_window", window=window))
    hit(playing, PROMPT)
    playing.engine.pool.forget()
    assert hit(playing, PROMPT) == (0, 56)
    assert not playing.scheduler.counts["failed_loads"]


def test_a_draft_model_of_which_no_group_tells_is_known() -> None:
    """vLLM then drops the last block of every hit (kv_cache_coordinator.py), and so does this."""
    config = cache_config(KINDS["full"], 8, 0)
    for drops in (True, False):
        speculative = SimpleNamespace(use_eagle_block_drop=lambda drops=drops: drops)
        assert groups_of(config, speculative).drafts == drops
    assert not groups_of(config).drafts


def test_latent_groups_alone_are_the_same_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with heads, such as a draft model's, makes the pages of each rank its own."""
    monkeypatch.setitem(CLASSES, "latent", "MLAAttentionSpec")
    for kinds in ("full latent", "latent full", "latent latent"):
        config = cache_config([(kind, 4) for kind in kinds.split()], 8, 0)
        assert bool(groups_of(config).shared) == ("full" not in kinds), kinds


def loads(playing: Playing, lora: Lora | None = None) -> None:
    """Make a prompt one that can be loaded, and load it."""
    faults, playing.engine.faults = playing.engine.faults, 0.0
    for _ in range(2):
        hit(playing, PROMPT, lora)
        assert playing.engine.empty()
        playing.worker.lora_manager.loaded.clear()
    playing.engine.faults = faults


def replaced(playing: Playing, folder: Path) -> None:
    """An adapter's files are others than those that vLLM has loaded."""
    lora = written(folder, 3, random.Random(0))
    playing.worker.lora_manager.add_adapter(lora)
    (Path(lora.lora_path) / "adapter_model.safetensors").write_text("c")
    loads(playing, lora)


def updated(playing: Playing, late: bool) -> None:
    """The weights change, which nobody tells: before a load, or while a rank loads."""
    loads(playing)
    if late:
        after(playing.workers[-1], "load", lambda at: playing.worker.write() if at.loads else None)
    else:
        playing.worker.write()
    hit(playing, PROMPT)
    assert "the weights were changed" in playing.notices[-1]


TWO: dict[str, Any] = {"ranks": 2, "store": "kv"}
# what is to be reached, the setting, resets, changes, and the kinds of groups
DRAWN: tuple[tuple[str, dict[str, Any], float, float, str], ...] = (
    ("saved_pages", {"form": "plain"}, 0.0, 0.0, "state"),
    ("saved_pages", {"form": "split"}, 0.0, 0.0, "full"),
    ("saved_pages", {"form": "planes"}, 0.0, 0.0, "uneven"),
    ("saved_pages", {"blocks": 45, "chunk": 40}, 0.0, 0.0, "small_window"),  # preempted
    ("resets", {"blocks": 45}, 0.1, 0.0, "all"),
    ("failed", TWO | {"faults": 0.2}, 0.0, 0.0, "window"),
    ("storage_tokens", TWO | {"host_pages": 20}, 0.0, 0.0, "all"),
    ("failed", TWO | {"adapters": "a"}, 0.0, 0.15, "small_state"),
)


@pytest.mark.parametrize(("what", "setting", "resets", "changes", "kinds"), DRAWN)
def test_drawn_sequences(
    opened: Opened,
    what: str,
    setting: dict[str, Any],
    resets: float,
    changes: float,
    kinds: str,
    tmp_path: Path,
) -> None:
    """Each begins and ends with what is to be reached, since how copies and passes interleave
    between is not drawn but happens. The second begins with the store that the first left."""
    places = {name: tmp_path / setting[name] for name in ("store", "adapters") if name in setting}
    for seed in range(1 + ("store" in setting)):
        playing = opened(Setting(kinds, **setting | places))
        engine, counts = playing.engine, playing.scheduler.counts
        loads(playing)
        drawn(seed, playing, 16, resets, changes)
        if resets:
            assert engine.reset()
        if changes:
            replaced(playing, places["adapters"])
            updated(playing, late=bool(seed))
            drawn(seed, playing, 8, resets, changes)
        if engine.faults:
            loads(playing)
            engine.faults = 1.0
        hit(playing, PROMPT)
        assert counts["host_tokens"] + counts["storage_tokens"]
        assert engine.failed <= counts["failed_loads"]
        assert what != "saved_pages" or not counts["failed_loads"]
    assert (counts | {"failed": engine.failed, "resets": engine.weights}).get(what)
