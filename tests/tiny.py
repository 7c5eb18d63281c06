"""A model that is quick to move: every test that needs bytes, and not whose, takes this one;
numbers of pages; and a configuration with the settings of its components under their names."""

from typing import Any

import numpy as np

from hicache.core.components import MambaSettings, SwaSettings
from hicache.core.config import Config
from hicache.core.types import Pages
from hicache.models import ModelDescription, described
from hicache.runtime.config_document import document, replaced


def tiny(layers: int, head_elements: int = 6, kv_heads: int = 2) -> ModelDescription:
    """Keys and values of two bytes an element."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 16, "num_attention_heads": 4}
    rows = {"num_hidden_layers": layers, "num_key_value_heads": kv_heads, "head_dim": head_elements}
    return described(sizes | rows, "tiny", "tiny")


def tiny_latents(layers: int, latent: int, rope: int, nope: int, value: int) -> ModelDescription:
    """One row of latent + rope elements of two bytes."""
    widths = {"kv_lora_rank": latent, "qk_rope_head_dim": rope, "qk_nope_head_dim": nope}
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 16, "num_attention_heads": 4}
    values = {"num_hidden_layers": layers, "v_head_dim": value, **sizes, **widths}
    return described(values, "latent", "latent")


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
}


def pages(*numbers: int) -> Pages:
    return np.array(numbers, dtype=np.int64)


def configured(*sizes: Any, **settings: Any) -> Config:
    """`Config(...)`, where `swa_window`, `mamba_interval` and `mamba_states_per_path` may be said;
    0 is as if nothing were."""
    window = settings.pop("swa_window", 0)
    states = settings.pop("mamba_interval", 0), settings.pop("mamba_states_per_path", 0)
    message: list[Any] = [SwaSettings(window)] if window else []
    message += [MambaSettings(*states)] if any(states) else []
    return Config(*sizes, **settings, settings=tuple(message))


def message_of(config: Config, name: str) -> int:
    """What it says under that name; 0 where it says nothing."""
    return int(document(config).get(name, 0))


def changed(config: Config, **settings: Any) -> Config:
    """The configuration with other settings under those names."""
    return replaced(config, settings)
