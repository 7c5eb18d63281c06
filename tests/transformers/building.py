"""Builds the models of a family.

The weights are random and follow from the seed alone. They are larger than those with which one
would begin to train, so that logits depend on distant tokens: with small weights every logit is
nearly constant, and a wrong page would pass for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
import transformers
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    logging,
)

from .families import FAMILIES, VOCABULARY, WITH_STATES, names

__all__ = ["VOCABULARY", "attentions", "build", "build_all", "built", "configurations", "names"]

_ATTENTIONS = ("eager", "sdpa")


def configurations(name: str) -> tuple[PretrainedConfig, ...]:
    """New configurations of the models of a family, the target first."""
    return tuple(
        getattr(transformers, kind)(**deepcopy(settings)) for kind, settings in FAMILIES[name]
    )


def attentions(name: str) -> tuple[str, ...]:
    """The implementations of attention that the library has for all models of the family."""
    models = [MODEL_FOR_CAUSAL_LM_MAPPING[type(one)] for one in configurations(name)]
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
    return tuple(
        built(configuration, seed, dtype, attention, _PREPARED.get(name))
        for configuration in configurations(name)
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


# -- weights where the library's initial values make a model that hardly remembers


def _lengthen_memory(model: PreTrainedModel) -> None:
    """Let states decay over about a hundred tokens, and take in much of each token.

    With the library's initial values a head either forgets within a few tokens or takes in a
    thousandth of each, and a wrong state would hardly change a logit.
    """
    for module in model.modules():
        if hasattr(module, "A_log"):
            module.A_log.uniform_(-5.0, -2.0)
            module.dt_bias.uniform_(-1.0, 0.5)


def _fill_zeros(model: PreTrainedModel) -> None:
    """What the library leaves at zero: which experts a token has, the weights of the places in a
    group, and the sinks."""
    for name, buffer in model.named_buffers():
        if name.endswith("tid2eid"):
            experts = model.config.n_routed_experts
            drawn = [torch.randperm(experts)[: buffer.shape[1]] for _ in range(len(buffer))]
            buffer.copy_(torch.stack(drawn))
    for name, parameter in model.named_parameters():
        if name.endswith(("position_bias", "sinks")):
            parameter.normal_(std=0.5)


_PREPARED = {"deepseek-v4": _fill_zeros, **dict.fromkeys(WITH_STATES, _lengthen_memory)}
