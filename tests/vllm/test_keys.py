"""What decides the key of a stored page: everything that its bytes depend on, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hicache.vllm.describing import context_of
from hicache.vllm.groups import FULL, groups_of

from .engine import cache_config


def digest(blocks: int = 16, weights: str = "w", **changed: Any) -> str:
    """The context of an engine with keys and values apart."""
    config = SimpleNamespace(to_dict=lambda: {"hidden": 8}, architectures=["A"])
    fields = {"dtype": "bf16", "cache_dtype": "fp8_e4m3", "quantization": None} | changed
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=config, **fields),
        cache_config=SimpleNamespace(cache_dtype=fields["cache_dtype"]),
    )
    groups = groups_of(cache_config([(FULL, changed.get("block", 4))], blocks, 0))
    shape = (2, blocks, *changed.get("inner", (4, 8)))
    tensors = {"0.0": torch.zeros(shape, dtype=changed.get("kind", torch.uint8))}
    return context_of(vllm_config, groups, tensors, blocks, weights).digest


def test_the_size_of_the_pool_does_not_matter() -> None:
    assert digest() == digest(blocks=32)


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": "others"},
        {"dtype": "fp16"},
        {"cache_dtype": "fp8_e5m2"},
        {"quantization": "awq"},
        {"block": 8},
        {"inner": (8, 4)},
        {"kind": torch.int8},
    ],
    ids=lambda one: next(iter(one)),
)
def test_what_the_bytes_depend_on_does(changed: dict[str, Any]) -> None:
    assert digest() != digest(**changed)
