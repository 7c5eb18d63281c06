"""Drawn calls of PrefixCache: whatever was changed, stored, lost or killed before, the logits are
those of the model as it is now."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", exc_type=ImportError, reason="needs the extra transformers")

import torch

from hicache.transformers import PrefixCache
from hicache.transformers.engine import PAUSE_S
from tests.needs import PATIENCE_S

from . import building as base
from .building import empty_device
from .test_cache import prompt

ASKED = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
SIZES = {"page_size": 4, "interval_tokens": 8, "device_tokens": 128, "host_tokens": 256}
PROMPTS = [prompt(24)[:, :length] for length in (3, 5, 9, 13, 17, 21, 24)]
APART = 1e-3  # in standard deviations of the logits
_BLOCK = 512  # bytes, of which one is spoilt


def weights(model: Any, changed: bool) -> None:
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight.mul_(2.0 if changed else 0.5)


def scaling(model: Any, changed: bool) -> None:
    model.model.layers[0].self_attn.scaling *= 4.0 if changed else 0.25


def attention(model: Any, changed: bool) -> None:
    model.set_attn_implementation("sdpa" if changed else "eager")


CHANGES: tuple[Callable[[Any, bool], None], ...] = (weights, scaling, attention)
DISTURBED = ("close", "drop", "spoil", "kill", "clear", "device", "rest")


class Play:
    """A model and its cache on a folder. hits: tokens from each tier, and spoilt values, of
    caches that are gone."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._draws, self._folder = Random(seed), folder
        self._model = base.build(("llama", "gemma3")[seed % 2])
        self._changed = dict.fromkeys(CHANGES, False)
        self._cache: PrefixCache | None = None
        self._next: list[str] = []  # what disturbs it: each once before any comes again
        self.hits: Counter[str] = Counter()

    def call(self) -> None:
        """Change or disturb something or nothing, and compare one call."""
        if self._draws.random() < 0.1:
            change = self._draws.choice(CHANGES)
            self._changed[change] = not self._changed[change]
            change(self._model, self._changed[change])
        ids = self._draws.choice(PROMPTS)
        if self._draws.random() < 0.15 and self._cache is not None:
            self._next = self._next or self._draws.sample(DISTURBED, len(DISTURBED))
            if self._next[-1] == "spoil":
                ids = PROMPTS[-1]
            self._disturb(self._cache, self._next.pop())
        cache = self.opened()
        with torch.inference_mode():
            wanted = self._model(ids, use_cache=False).logits[0, -1]
        logit = cache.generate(ids, max_new_tokens=1, **ASKED).logits[0][0]
        assert (logit - wanted).abs().max() < APART * wanted.std(), self._changed

    def opened(self) -> PrefixCache:
        if self._cache is None:
            address = f"file:{self._folder}{self._draws.choice(('', '?size=300000'))}"
            self._cache = PrefixCache(self._model, **SIZES, storage=address, wait_s=PATIENCE_S)
        return self._cache

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()
            self._drop(self._cache)

    def _drop(self, cache: PrefixCache) -> None:
        self.hits.update(cache.stats.hits, spoilt=cache.stats.losses.reads_corrupt)
        self._cache = None

    def _disturb(self, cache: PrefixCache, what: str) -> None:
        if what == "close":
            self.close()
        elif what == "drop":
            self._drop(cache)
        elif what == "spoil":
            cache.flush(PATIENCE_S)
            spoil(self._folder, self._draws)
            cache.clear()
        elif what == "kill":
            with cache._turn():
                cache._engine._attachment.store.close()
        elif what == "clear":
            cache.clear(storage=self._draws.random() < 0.5)
        elif what == "device":
            if cache.flush(1.0):
                empty_device(cache)
        else:
            rest(cache)


def rest(cache: PrefixCache) -> None:
    """A cache comes to rest without a call, with figures that agree."""
    for _ in range(int(PATIENCE_S / PAUSE_S)):
        if not cache._engine.busy:
            break
        cache._engine.clock.sleep(PAUSE_S)
    else:
        pytest.fail("copies or stores are under way, and nobody carries them on")
    cache.flush()
    done, stats = cache.flush(), cache.stats
    assert done == (not stats.unstored_tokens)
    assert stats.prompt_tokens == stats.computed_tokens + stats.saved_tokens


def spoil(folder: Path, draws: Random) -> None:
    """Change a byte in some of the blocks that a store of files has."""
    stored = bytearray((folder / "data").read_bytes())
    for start in range(0, len(stored), _BLOCK):
        if any(stored[start : start + _BLOCK]) and draws.random() < 0.3:
            stored[min(start + draws.randrange(_BLOCK), len(stored) - 1)] ^= 1 << 6
    with (folder / "data").open("r+b") as file:
        file.write(stored)


@pytest.mark.parametrize("seed", range(2))
def test_drawn_calls_are_those_of_the_model_as_it_is(seed: int, tmp_path: Path) -> None:
    play = Play(seed, tmp_path / "kv")
    for _ in range(80):
        play.call()
    play.close()
    assert min(play.hits[what] for what in ("device", "disk", "spoilt")) > 0


def test_a_process_that_is_killed_leaves_no_wrong_page_and_the_next_is_warm(tmp_path: Path) -> None:
    """In the middle of a call."""
    child = os.fork()
    if not child:
        try:
            play = Play(0, tmp_path / "kv")
            for _ in range(25):
                play.call()
            play.close()
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()
            while True:
                play.call()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "a call failed"
    play = Play(0, tmp_path / "kv")
    for _ in range(30):
        play.call()
    play.close()
    assert play.hits["disk"]
