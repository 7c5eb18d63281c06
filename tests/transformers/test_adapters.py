"""Adapters of PEFT: a page belongs to those that were active when it was made."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", exc_type=ImportError, reason="needs the extra transformers")

import torch

from hicache.transformers import PrefixCache, UnsupportedModelError

from . import building as base
from .test_cache import SIZES, both, prompt
from .test_cache_errors import refused

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
TARGETS = ["q_proj", "k_proj", "v_proj"]


def peft() -> Any:
    return pytest.importorskip("peft", exc_type=ImportError, reason="needs peft")


def config(**values: Any) -> Any:
    fields = {"r": 4, "lora_alpha": 64, "init_lora_weights": False, "target_modules": TARGETS}
    return peft().LoraConfig(task_type="CAUSAL_LM", **fields | values)


def adapted() -> Any:
    """A model with two adapters; the first one is active."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(10)
        model = peft().get_peft_model(base.build("llama"), config(), adapter_name="first")
        model.add_adapter("second", config())
    return model.eval()


def reused(cache: PrefixCache) -> int:
    """Tokens that the next call reuses. It must give those of the model."""
    before = cache.stats.saved_tokens
    both(cache.model, cache, prompt(60))
    return cache.stats.saved_tokens - before


def rescaled(model: Any, factor: float) -> None:
    for module in model.modules():
        if isinstance(getattr(module, "scaling", None), dict):
            module.scaling = {name: scale * factor for name, scale in module.scaling.items()}


def test_pages_follow_the_active_adapter(tmp_path: Path) -> None:
    address, model = f"file:{tmp_path}", adapted()
    with PrefixCache(model, storage=address, **SIZES) as cache:
        assert cache.model is model.get_base_model()
        assert (reused(cache), reused(cache)) == (0, 56)
        model.set_adapter("second")
        assert (reused(cache), reused(cache)) == (0, 56)
        with model.disable_adapter():
            assert (reused(cache), reused(cache)) == (0, 56)
        assert reused(cache) == 56
        rescaled(model, 0.25)
        assert reused(cache) == 0
        rescaled(model, 4.0)
        assert reused(cache) == 56
        model.set_adapter("first")
        assert reused(cache) == 56
    model = adapted()
    model.set_adapter("second")
    with PrefixCache(model, storage=address, **SIZES) as cache:
        assert cache.match(prompt(60)) == 56
        rescaled(model, 0.5)
        assert cache.match(prompt(60)) == 0


def test_merging_and_adding_are_changes() -> None:
    model = adapted()
    with PrefixCache(model, **SIZES) as cache:
        assert (reused(cache), reused(cache)) == (0, 56)
        model.merge_adapter()
        assert (reused(cache), reused(cache)) == (0, 56)
        model.unmerge_adapter()  # which rounds
        assert reused(cache) in (0, 56)
        model.add_adapter("third", config())
        model.eval()
        assert reused(cache) == 0
        model.delete_adapter("third")
        assert reused(cache) == 56


def test_adapters_that_add_tokens_are_refused() -> None:
    tuning_config = peft().PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    with refused(UnsupportedModelError, "adapter default", "PROMPT_TUNING", "model.generate"):
        PrefixCache(peft().get_peft_model(base.build("llama"), tuning_config).eval())
