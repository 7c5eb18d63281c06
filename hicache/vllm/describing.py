"""What two engines must have in common to share pages in a store, as vLLM has it.

The weights with all that says how they are read (`belonging`), and the form of the pages
(`context_of`). Imports nothing of vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hicache.storage import identity
from hicache.storage.keys import Context

from .groups import Groups
from .moving import block_axis

_LEFT_OUT = ("_name_or_path", "transformers_version", "_attn_implementation", "torch_dtype")
_MODEL = (
    *("dtype", "quantization", "quantization_config", "disable_sliding_window", "model_impl"),
    *("model_weights", "model_class_overrides"),
)
_LOAD = ("load_format", "model_loader_extra_config", "ignore_patterns")  # which of its files
_CACHE = ("cache_dtype", "mamba_cache_dtype", "mamba_ssm_cache_dtype")


def belonging(
    config: Any, named: str, folder_of: Callable[[str, str | None], str | None]
) -> dict[str, Any]:
    """What rows follow from, beside tokens, salt and adapter. config: vLLM's `VllmConfig`. named:
    what the person calls the weights. folder_of: where files that were downloaded are.

    Raises CallerError where nothing says what the weights are."""
    adapters = getattr(config, "lora_config", None)
    found = {
        "model": _model(config.model_config, config.load_config, named, folder_of, "weights"),
        "cache": {name: str(getattr(config.cache_config, name, "")) for name in _CACHE},
        "adapters": [str(getattr(adapters, name, "")) for name in ("lora_dtype", "target_modules")],
    }
    speculative = getattr(config, "speculative_config", None)
    draft = getattr(speculative, "draft_model_config", None)
    if draft is not None:
        what = "weights of the draft model"
        load = getattr(speculative, "draft_load_config", None) or config.load_config
        found["draft"] = _model(draft, load, named, folder_of, what)
        found |= {
            name: str(getattr(speculative, name, "")) for name in ("method", "kv_cache_dtype")
        }
    return found


def context_of(
    config: Any,
    groups: Groups,
    tensors: Mapping[str, Any],
    blocks: int,
    belongs: Mapping[str, Any],
) -> Context:
    """The context of one engine. tensors: those of its cache, by layer. blocks: of its pool, which
    do not matter. belongs: see `belonging`."""
    document = {
        **belongs,
        "groups": [tuple(one) for one in groups.groups],
        "tensors": {
            layer: [
                (_form(one, blocks), str(one.dtype))
                for one in (given if isinstance(given, list | tuple) else [given])
            ]
            for layer, given in tensors.items()
        },
    }
    name = "+".join(getattr(config.model_config.hf_config, "architectures", None) or ["model"])
    return identity.context_of(name, document, groups.page, groups.page_bytes)


def _model(
    model: Any, load: Any, named: str, folder_of: Callable[..., str | None], what: str
) -> dict[str, Any]:
    weights = named
    if not weights and load.load_format == "dummy":
        weights = f"dummy weights of seed {model.seed}"
    if not weights:
        weights = identity.digest_of_weights(model.model, model.revision, folder_of, what)
    described = {
        name: value for name, value in model.hf_config.to_dict().items() if name not in _LEFT_OUT
    }
    code = identity.code_of(
        described, model.model, model.revision, folder_of, getattr(model, "code_revision", None)
    )
    found = {"weights": weights, "config": described, "code": code}
    if "longrope" in json.dumps(described, default=str):  # vLLM then chooses the angles by it
        found["max_model_len"] = model.max_model_len
    if not named:
        found |= {name: str(getattr(load, name, None)) for name in _LOAD}
    return found | {name: str(getattr(model, name, None)) for name in _MODEL}


def _form(tensor: Any, blocks: int) -> tuple[int, ...]:
    """The shape of a tensor for one block."""
    axis = block_axis(tensor, blocks)
    return tuple(size // blocks if at == axis else size for at, size in enumerate(tensor.shape))
