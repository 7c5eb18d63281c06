"""Drawn calls of PrefixCache: whatever was changed, stored, lost or killed before, the logits are
those of the model as it is now."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", exc_type=ImportError, reason="needs the extra transformers")

import torch

from hicache.core.errors import CallerError
from hicache.transformers import PrefixCache, UnsupportedModelError
from hicache.transformers.engine import PAUSE_S
from tests.patience import PATIENCE_S

from .emptying import empty_device
from .worlds import FAMILIES, World

CALLS = 1000
ASKED = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
SIZES = {"page_size": 4, "interval_tokens": 8, "device_tokens": 128, "host_tokens": 256}
APART = {torch.float32: 1e-3, torch.bfloat16: 0.15}  # in standard deviations of the logits
_BLOCK = 512  # bytes, of which one is spoilt


class Play:
    """Two equal models and their caches on one folder. seen: what was drawn, and the hits."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seen: Counter[str] = Counter()
        self._draws, self._folder = Random(seed), folder
        family, dtype = self._draws.choice(FAMILIES)
        self._dtype = dtype
        self._worlds = [World(family, dtype, self._draws) for _ in range(2)]
        self.caches: list[PrefixCache | None] = [None, None]
        self._cold: dict[Any, torch.Tensor] = {}
        whole = [self._draws.randrange(3, 97) for _ in range(24)]
        whole[1], whole[6] = 9, 10
        lengths = (3, 5, 9, 13, 17, 21, 24)
        self._prompts = [torch.tensor([whole[:length]]) for length in lengths]
        self._prompts.append(torch.tensor([[*whole[:12], 9, 9, *whole[:5]]]))

    def call(self) -> None:
        """Change something or nothing, and compare one call."""
        at = self._draws.randrange(2)
        chance = self._draws.random()
        if chance < 0.10:
            self._change(self._worlds[at])
        elif chance < 0.13:
            self._disturb(at)
        world, number = self._worlds[at], self._draws.randrange(len(self._prompts))
        prompt = self._prompts[number]
        cache = self.caches[at] or self._open(at)  # opening may change what the types are
        with world.types():
            wanted = self._reference(world, number, prompt)
            try:
                found = cache.generate(prompt, max_new_tokens=1, **ASKED).logits[0][0]
            except UnsupportedModelError:
                if world.served:
                    raise
                return
        apart = (found.float() - wanted).abs().max() / wanted.std()
        # with "medium" some processors multiply in half precision
        half = world.autocast is not None or bool(world.state["precision"])
        rough = torch.bfloat16 if half else self._dtype
        assert apart < APART[rough], f"prompt {number}, state {world.state}"
        if chance > 0.95:
            rest(cache)

    def close(self) -> None:
        for at, cache in enumerate(self.caches):
            if cache is not None:
                self._count(cache)
                cache.close()
            self.caches[at] = None

    def _reference(self, world: World, number: int, prompt: torch.Tensor) -> torch.Tensor:
        """The logits of the model without a cache, once for each state."""
        key = (number, *world.state.values())
        if key not in self._cold:
            with torch.inference_mode():
                found = world.model(prompt, use_cache=False).logits[0, -1].float()
            if world.state["train"]:
                return found
            self._cold[key] = found
        return self._cold[key]

    def _change(self, world: World) -> None:
        """Back to what it was, or one property more that is not."""
        changed = [name for name, value in world.state.items() if value]
        if changed and self._draws.random() < 0.5 + 0.2 * len(changed):
            for name in changed:
                world.put(name, 0)
            return
        name = self._draws.choice(list(world.properties))
        world.put(name, self._draws.randrange(1, world.properties[name].values))

    # -- caches and stores

    def _open(self, at: int) -> PrefixCache:
        """A cache on the folder. A model that is not served is put back; a folder that is spoilt is
        made anew."""
        world = self._worlds[at]
        if not world.served:
            for name in world.state:
                world.put(name, 0)
        given = {
            "storage": f"file:{self._folder}" if self._draws.random() < 0.95 else None,
            "storage_bytes": self._draws.choice((0, 0, 300_000)),
            "wait_s": 0.2,
        }
        try:
            with world.types():
                made = PrefixCache(world.model, **SIZES, **given)
        except CallerError as error:
            if isinstance(error, UnsupportedModelError):
                raise
            self.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            with world.types():
                made = PrefixCache(world.model, **SIZES, **given)
        self.caches[at] = made
        return made

    def _disturb(self, at: int) -> None:
        what = self._draws.choice(
            ("close", "close", "drop", "spoil", "spoil", "kill", "clear", "device")
        )
        cache = self.caches[at]
        if cache is None:
            return
        if what == "close":
            self._count(cache)
            cache.close()
        elif what == "drop":
            self._count(cache)
        elif what == "spoil":
            cache.flush(1.0)
            spoil(self._folder, self._draws)
            cache.clear()
        elif what == "kill":
            with cache._turn():
                store = cache._ongoing._attachment.store
                if store is not None:
                    store.close()
        elif what == "clear":
            cache.clear(storage=self._draws.random() < 0.5)
        elif cache.flush(1.0) and not self._draws.randrange(4):
            empty_device(cache)
        if what in ("close", "drop"):
            self.caches[at] = None
        del cache

    def _count(self, cache: PrefixCache) -> None:
        for tier, tokens in cache._stats.hits.items():
            self.seen[f"tokens from {tier}"] += tokens


def rest(cache: PrefixCache) -> None:
    """A cache comes to rest without a call, with figures that agree."""
    for _ in range(int(PATIENCE_S / PAUSE_S)):
        if not cache._ongoing.busy:
            break
        cache._ongoing.clock.sleep(PAUSE_S)
    else:
        pytest.fail("copies or stores are under way, and nobody carries them on")
    cache.flush()
    done, stats = cache.flush(), cache.stats
    assert done == (not stats.unstored_tokens)
    assert stats.prompt_tokens == stats.computed_tokens + stats.saved_tokens


def spoil(folder: Path, draws: Random) -> None:
    """Change a byte in some of the blocks that a store of files has."""
    share = draws.choice((0.02, 0.3))
    for path in sorted(folder.rglob("*.slots")):
        try:
            stored = bytearray(path.read_bytes())
        except FileNotFoundError:  # the store has just given this segment up
            continue
        for start in range(0, len(stored), _BLOCK):
            if any(stored[start : start + _BLOCK]) and draws.random() < share:
                stored[min(start + draws.randrange(_BLOCK), len(stored) - 1)] ^= 1 << 6
        with suppress(FileNotFoundError), path.open("r+b") as file:
            file.write(stored)


def test_drawn_calls_are_those_of_the_model_as_it_is(tmp_path: Path) -> None:
    for seed in range(2):
        play = Play(seed, tmp_path / "kv")
        for _ in range(CALLS):
            play.call()
        play.close()
        assert play.seen["tokens from device"] > CALLS


def test_processes_that_are_killed_leave_no_wrong_page_and_the_next_is_warm(tmp_path: Path) -> None:
    """Each in the middle of a call."""
    from_disk = 0
    for seed in range(2):
        child = os.fork()
        if not child:
            try:
                play = Play(seed, tmp_path / "kv")
                for _ in range(40):
                    play.call()
                for cache in play.caches:
                    assert cache is None or cache.flush(PATIENCE_S)
                kill = (os.getpid(), signal.SIGKILL)
                threading.Timer(Random(seed).random() * 0.02, os.kill, kill).start()
                while True:
                    play.call()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "a call failed"
        play = Play(seed, tmp_path / "kv")
        for _ in range(60):
            play.call()
        play.close()
        from_disk += play.seen["tokens from disk"]
    assert from_disk
