"""What two engines must have in common to share pages in a store: the context of keys.

Its revision is a digest of all that decides what the bytes of a page mean: the weights, the model's
configuration, types, block sizes, and the form of vLLM's tensors. Imports nothing of vLLM.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hicache.models.base import PoolDescription
from hicache.storage.keys import Context

from .groups import Groups
from .moving import block_axis

_LEFT_OUT = ("_name_or_path", "transformers_version", "_attn_implementation", "torch_dtype")


def context_of(
    config: Any, groups: Groups, tensors: Mapping[str, Any], blocks: int, weights: str
) -> Context:
    """The context of one engine. config: vLLM's `VllmConfig`. tensors: those of its cache, by
    layer. blocks: of its pool, which do not matter. weights: what they are called."""
    model, cache = config.model_config, config.cache_config
    described = {
        name: value for name, value in model.hf_config.to_dict().items() if name not in _LEFT_OUT
    }
    document = {
        "weights": weights,
        "config": described,
        "dtype": str(model.dtype),
        "kv_dtype": str(cache.cache_dtype),
        "quantization": str(model.quantization),
        "mamba": [str(getattr(cache, name, "")) for name in _STATES],
        "groups": [tuple(one) for one in groups.groups],
        "tensors": {
            layer: [
                (_form(one, blocks), str(one.dtype))
                for one in (given if isinstance(given, list | tuple) else [given])
            ]
            for layer, given in tensors.items()
        },
    }
    text = json.dumps(document, sort_keys=True, default=str)
    name = "+".join(getattr(model.hf_config, "architectures", None) or ["model"])
    pools = tuple(
        PoolDescription(
            name=component,
            component=component,
            kind="state",
            layers=(0,),
            parts=("page",),
            heads=1,
            head_elements=size,
            dtype="fp8",  # of one byte
            page_rows=1,
        )
        for component, size in groups.page_bytes.items()
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Context(name[:200], digest, groups.page, "tokens", pools)


_STATES = ("mamba_cache_dtype", "mamba_ssm_cache_dtype")


def _form(tensor: Any, blocks: int) -> tuple[int, ...]:
    """The shape of a tensor for one block."""
    axis = block_axis(tensor, blocks)
    return tuple(size // blocks if at == axis else size for at, size in enumerate(tensor.shape))
