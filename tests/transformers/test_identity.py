"""A store never gives a model the pages of another one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch

from hicache.transformers import PrefixCache, UnsupportedModelError
from hicache.transformers.identity.computation import Identity

from . import building as base
from .emptying import Streamer
from .test_cache import SIZES, both, prompt
from .test_cache_errors import refused


def tuned() -> Any:
    """The same configuration, and one layer's weights a little different."""
    model = base.build("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight += 1e-3
    return model


def one_word() -> Any:
    """One row of the embeddings, which the prompt has, a little different."""
    model = base.build("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[int(prompt(60)[0, 0])] += 1e-3
    return model


def scaled() -> Any:
    """The same weights, and a setting that none of them shows."""
    model = base.build("llama")
    model.config.rms_norm_eps = 1e-3
    return model


OTHERS: dict[str, Callable[[], Any]] = {
    "a fine-tune": tuned,
    "a word of the prompt": one_word,
    "another setting": scaled,
    "another attention": lambda: base.build("llama", attention="sdpa"),
}


def filled(folder: Path) -> str:
    """A store with pages of a prompt."""
    address = f"file:{folder}"
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        both(cache.model, cache, prompt(60))
    return address


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(tmp_path_factory.mktemp("kv"))


@pytest.mark.one_in(16)
def test_the_same_model_finds_its_pages(store: str) -> None:
    with PrefixCache(base.build("llama"), storage=store, **SIZES) as cache:
        assert cache.match(prompt(60)) == 56


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", OTHERS)
def test_another_model_finds_none(store: str, name: str) -> None:
    with PrefixCache(OTHERS[name](), storage=store, **SIZES) as cache:
        assert cache.match(prompt(60)) == 0


@pytest.mark.one_in(16)
@pytest.mark.parametrize("changed", [{"page_size": 16}, {"revision": "mine"}])
def test_other_settings_find_none(store: str, changed: dict[str, Any]) -> None:
    with PrefixCache(base.build("llama"), storage=store, **SIZES | changed) as cache:
        assert cache.match(prompt(60)) == 0


@pytest.mark.one_in(32)
def test_clear_deletes_what_is_stored_of_this_model_alone(tmp_path: Path) -> None:
    address = filled(tmp_path)
    with PrefixCache(tuned(), storage=address, **SIZES) as cache:
        both(cache.model, cache, prompt(60))
        cache.clear(storage=True)
        assert cache.match(prompt(60)) == 0
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        assert cache.match(prompt(60)) == 56


@pytest.mark.one_in(32)
def test_a_change_after_construction_is_seen_at_the_next_call(tmp_path: Path) -> None:
    """The pages of the changed model do not stand for those of the first one."""
    address = f"file:{tmp_path}"
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        both(cache.model, cache, prompt(60))
        first = copy.deepcopy(cache.model.state_dict())
        with torch.no_grad():
            for one in cache.model.parameters():
                one.mul_(1.5)
        both(cache.model, cache, prompt(60))
        assert cache.stats.saved_tokens == 0
        both(cache.model, cache, prompt(60))
        both(cache.model, cache, prompt(60, 9))
        assert cache.stats.saved_tokens == 56
        cache.model.load_state_dict(first)
        both(cache.model, cache, prompt(60))
        assert cache.stats.saved_tokens == 112
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        assert cache.match(prompt(60)) == 56
        assert cache.match(prompt(60, 9)) == 0


@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.train(), ("eval mode", "model.eval()")),
        (lambda model: model.model.layers[1].train(), ("eval mode", "module model.layers.1")),
        (lambda model: model.to(torch.bfloat16), ("float32", "found 3 layers", "bfloat16")),
        (
            lambda model: model.model.layers[0].to("meta"),
            ("weight model.model.layers.0.", "offloaded"),
        ),
    ],
    ids=["train", "a layer in training", "type", "offloaded"],
)
def test_a_change_that_cannot_be_served_is_refused(
    change: Callable[[Any], Any], words: tuple[str, ...]
) -> None:
    model = base.build("llama")
    with PrefixCache(model, **SIZES) as cache:
        both(model, cache, prompt(60))
        change(model)
        with refused(UnsupportedModelError, *words):
            cache.generate(prompt(60), max_new_tokens=2)
        assert cache.stats.requests == 1


def test_what_a_model_computed_that_changed_meanwhile_is_not_kept() -> None:
    model = base.build("llama")

    def change(call: int) -> None:
        """In the middle of a call, and back."""
        if call in (3, 5):
            with torch.no_grad():
                model.lm_head.weight.mul_(1.01 if call == 3 else 1 / 1.01)

    with PrefixCache(model, **SIZES) as cache:
        cache.generate(prompt(60), max_new_tokens=9, do_sample=False, streamer=Streamer(change))
        assert cache.stats.unkept == 1
        assert cache.match(prompt(60)) == 0


@pytest.mark.parametrize("every_call", [True, False])
def test_weights_of_the_same_version_are_read_again_or_not(every_call: bool) -> None:
    identity = Identity([base.build("llama")], every_call)
    identity.now()
    whole = identity.contents.read_bytes
    identity.now()
    assert identity.contents.read_bytes == whole * (2 if every_call else 1)
