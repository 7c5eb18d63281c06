"""The families of attention, and small models of each. What takes from a cache what its upper tiers
have, so that the next hit is on a lower one; and a streamer that acts.

The vocabulary is small for speed.

The weights are random and follow from the seed alone. They are larger than those with which one
would begin to train, so that logits depend on distant tokens: with small weights every logit is
nearly constant, and a wrong page would pass for rounding.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
import transformers  # loads models when they are built

from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from hicache.transformers.cache import PrefixCache

VOCABULARY = 97
_SHARED = {"vocab_size": VOCABULARY, "hidden_size": 64, "initializer_range": 0.1}
_GROUPED = _SHARED | {"num_attention_heads": 4, "num_key_value_heads": 2}
_LAYERS = _GROUPED | {"num_hidden_layers": 3, "intermediate_size": 96}
_EXPERTS = {"moe_intermediate_size": 32, "n_shared_experts": 1, "n_routed_experts": 4}
_LATENTS = (
    _LAYERS
    | _EXPERTS
    | {"num_key_value_heads": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    | {"kv_lora_rank": 24, "q_lora_rank": 32}
    | {"qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
)
Settings = dict[str, Any]


def _of(kind: str, *settings: Settings) -> tuple[str, Settings]:
    """A class of the library, and its settings."""
    return kind, {name: value for part in settings for name, value in part.items()}


FAMILIES: dict[str, tuple[str, Settings]] = {
    # latents: one and one rotated key per token; experts
    "deepseek-v3": _of(
        "DeepseekV3Config", _LATENTS, {"first_k_dense_replace": 2, "num_mtp_layers": 0}
    ),
    # a state and full attention in each layer
    "falcon-h1": _of(
        "FalconH1Config",
        _LAYERS | {"num_hidden_layers": 2, "mamba_d_ssm": 128, "mamba_n_heads": 8},
        {"mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8},
        {"mamba_chunk_size": 16},
    ),
    # most layers see a window, one sees everything
    "gemma3": _of(
        "Gemma3TextConfig",
        _LAYERS | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 12},
        {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    ),
    # windows and full layers in turns, sinks, experts
    "gpt-oss": _of(
        "GptOssConfig",
        _LAYERS | {"num_hidden_layers": 4, "head_dim": 16, "sliding_window": 10},
        {"intermediate_size": 48, "num_local_experts": 4, "num_experts_per_tok": 2},
        {"layer_types": ["sliding_attention", "full_attention"] * 2},
    ),
    # keys and values of every token, with fewer heads for them than for queries
    "llama": _of("LlamaConfig", _LAYERS),
    # states alone
    "mamba2": _of(
        "Mamba2Config",
        _SHARED | {"num_hidden_layers": 3, "num_heads": 8, "head_dim": 16},
        {"state_size": 8, "n_groups": 2, "chunk_size": 16},
    ),
    # states, full attention and layers without a cache, each on its own
    "nemotron-h": _of(
        "NemotronHConfig",
        _GROUPED | {"head_dim": 16, "intermediate_size": 96, "ssm_state_size": 8},
        {"layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"]},
        {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "conv_kernel": 4},
        # The library raises time steps to this in a pass of several tokens and forgets to in a
        # pass of one, so with its default of 0.001 decoding differs from a cold run.
        {"chunk_size": 16, "time_step_min": 1e-12},
    ),
    # gated delta rule in most layers, full attention in one, experts
    "qwen3-next": _of(
        "Qwen3NextConfig",
        _LAYERS | {"num_hidden_layers": 4, "head_dim": 16, "linear_conv_kernel_dim": 4},
        {"linear_key_head_dim": 8, "linear_value_head_dim": 8},
        {"linear_num_key_heads": 2, "linear_num_value_heads": 4},
        {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
        {"num_experts": 4, "num_experts_per_tok": 2},
        {"layer_types": ["linear_attention"] * 3 + ["full_attention"]},
    ),
}
WITH_STATES = ("falcon-h1", "mamba2", "nemotron-h", "qwen3-next")


def names() -> list[str]:
    return [*FAMILIES]


def configuration(name: str) -> Any:
    """A new configuration of the model of a family."""
    kind, settings = FAMILIES[name]
    made: Any = getattr(transformers, kind)(**deepcopy(settings))
    return made


def build(
    name: str, seed: int = 1, dtype: torch.dtype = torch.float32, attention: str = "eager"
) -> Any:
    """The model of a family, ready to be evaluated."""
    return built(configuration(name), seed, dtype, attention, _PREPARED.get(name))


def built(
    configuration: Any,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
    attention: str = "eager",
    prepare: Callable[[Any], None] | None = None,
) -> Any:
    """The model of a configuration. The random numbers of the process stay as they are.

    The library's hints on standard error (for instance about kernels that are not installed) are
    turned off for the process.
    """
    transformers.logging.set_verbosity_error()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(
            configuration, dtype=dtype, attn_implementation=attention
        )
        if prepare is not None:
            prepare(model)
    return model.eval()


# -- weights where the library's initial values make a model that hardly remembers


def _lengthen_memory(model: Any) -> None:
    """Let states decay over about a hundred tokens, and take in much of each token.

    With the library's initial values a head either forgets within a few tokens or takes in a
    thousandth of each, and a wrong state would hardly change a logit.
    """
    for module in model.modules():
        if hasattr(module, "A_log"):
            module.A_log.uniform_(-5.0, -2.0)
            module.dt_bias.uniform_(-1.0, 0.5)


def _fill_sinks(model: Any) -> None:
    """What the library leaves at zero."""
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            parameter.normal_(std=0.5)


_PREPARED = {"gpt-oss": _fill_sinks, **dict.fromkeys(WITH_STATES, _lengthen_memory)}


_PATIENCE_S = 60.0


class Streamer:
    """Keeps what it is given, and then acts. act: gets the number of the call, from 1 on."""

    def __init__(self, act: Callable[[int], None] = lambda call: None) -> None:
        self.received: list[list[int]] = []
        self.ended = False
        self._act = act

    def put(self, value: torch.Tensor) -> None:
        self.received.append(value.flatten().tolist())
        self._act(len(self.received))

    def end(self) -> None:
        self.ended = True


def empty_device(cache: PrefixCache) -> None:
    """Evict every page from the device. What is on host stays."""
    assert cache.flush(_PATIENCE_S)
    view = cache._engine.driver.core.view
    with cache._turn():
        for component, pool in zip(view.config.components, view.pools(Tier.DEVICE), strict=True):
            if pool.evictable:
                cache._engine.feed(EvictWanted(Tier.DEVICE, component, pool.evictable))
    assert cache.flush(_PATIENCE_S)


def empty_memory(cache: PrefixCache) -> None:
    """Forget everything but what the store has."""
    assert cache.flush(_PATIENCE_S)
    cache.clear()
