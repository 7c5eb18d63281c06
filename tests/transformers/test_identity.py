"""A store never gives a model the pages of another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch

from hicache.transformers import PrefixCache
from invariants.prove.families import base

from .test_cache import SIZES, both, prompt


def tuned() -> Any:
    """The same configuration, and one layer's weights a little different."""
    model = base.build("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight += 1e-3
    return model


def reworded() -> Any:
    """The same configuration, and one of the last words a little different."""
    model = base.build("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[90] += 1e-3
    return model


def scaled() -> Any:
    """The same weights, and a setting that none of them shows."""
    model = base.build("llama")
    model.config.rms_norm_eps = 1e-3
    return model


OTHERS: dict[str, Callable[[], Any]] = {
    "other weights": lambda: base.build("llama", seed=2),
    "a fine-tune": tuned,
    "another word": reworded,
    "another setting": scaled,
    "another type": lambda: base.build("llama", dtype=torch.bfloat16),
    "another attention": lambda: base.build("llama", attention="sdpa"),
    "another model": lambda: base.build("gemma3"),
}


def filled(folder: Path) -> str:
    """A store with pages of a prompt."""
    address = f"file:{folder}"
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        both(cache.model, cache, prompt(60))
    return address


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return filled(tmp_path_factory.mktemp("kv"))


def test_the_same_model_finds_its_pages(store: str) -> None:
    with PrefixCache(base.build("llama"), storage=store, **SIZES) as cache:
        assert cache.match(prompt(60)) == 56


@pytest.mark.parametrize("name", OTHERS)
def test_another_model_finds_none(store: str, name: str) -> None:
    with PrefixCache(OTHERS[name](), storage=store, **SIZES) as cache:
        assert cache.match(prompt(60)) == 0


@pytest.mark.parametrize("changed", [{"page_size": 16}, {"revision": "mine"}])
def test_other_settings_find_none(store: str, changed: dict[str, Any]) -> None:
    with PrefixCache(base.build("llama"), storage=store, **SIZES | changed) as cache:
        assert cache.match(prompt(60)) == 0


def test_clear_deletes_what_is_stored_of_this_model_alone(tmp_path: Path) -> None:
    address = filled(tmp_path)
    with PrefixCache(tuned(), storage=address, **SIZES) as cache:
        both(cache.model, cache, prompt(60))
        cache.clear(storage=True)
        assert cache.match(prompt(60)) == 0
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        assert cache.match(prompt(60)) == 56
