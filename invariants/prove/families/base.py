"""The interface of the families, and how the models of one are built.

A file defines `SUMMARY` and `configurations() -> (configuration, ...)`: a configuration of the
library for each model that runs on the same tokens, the target first; a draft model is the second.
It may define `prepare(model)`, which changes weights where the library's initial values make a
model that hardly remembers.

The weights are random and follow from the seed alone. They are larger than those with which one
would begin to train, so that logits depend on distant tokens: with small weights every logit is
nearly constant, and a wrong page would pass for rounding. The vocabulary is small for speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    logging,
)

from hicache import registry

FAMILIES = "invariants.prove.families"
VOCABULARY = 97
_ATTENTIONS = ("eager", "sdpa")


def names() -> list[str]:
    return registry.names(FAMILIES)


def attentions(name: str) -> tuple[str, ...]:
    """The implementations of attention that the library has for all models of the family."""
    models = [MODEL_FOR_CAUSAL_LM_MAPPING[type(one)] for one in _configurations(name)]
    with_sdpa = all(model._supports_sdpa for model in models)
    return _ATTENTIONS if with_sdpa else _ATTENTIONS[:1]


def build(
    name: str, seed: int = 1, dtype: torch.dtype = torch.float32, attention: str = "eager"
) -> PreTrainedModel:
    """The target model of a family."""
    return build_all(name, seed, dtype, attention)[0]


def build_all(
    name: str, seed: int = 1, dtype: torch.dtype = torch.float32, attention: str = "eager"
) -> tuple[PreTrainedModel, ...]:
    """Every model of a family, the target first, ready to be evaluated."""
    prepare = getattr(registry.load(FAMILIES, name), "prepare", None)
    return tuple(
        built(configuration, seed, dtype, attention, prepare)
        for configuration in _configurations(name)
    )


def built(
    configuration: PretrainedConfig,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
    attention: str = "eager",
    prepare: Callable[[PreTrainedModel], None] | None = None,
) -> PreTrainedModel:
    """The model of a configuration. The random numbers of the process stay as they are.

    The library's hints on standard error (for instance about kernels that are not installed) are
    turned off for the process.
    """
    logging.set_verbosity_error()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(
            configuration, dtype=dtype, attn_implementation=attention
        )
        if prepare is not None:
            prepare(model)
    return model.eval()


def _configurations(name: str) -> Any:
    return registry.load(FAMILIES, name).configurations()
