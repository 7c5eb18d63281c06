"""What a wrong page does to logits: parts of the library's own cache, replaced by those of another
prompt. Page PAGE of a prompt of CUT tokens is replaced, or what is kept at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from invariants.prove import cold
from invariants.prove.families import VOCABULARY
from invariants.prove.oracle import Oracle

PAGE_TOKENS = 8
PAGE = 3
ROWS = slice(PAGE * PAGE_TOKENS, (PAGE + 1) * PAGE_TOKENS)
CUT = 64
AFTER = 24

Spoiler = Callable[[Any, Any], bool]  # (a layer, that of the other prompt) -> whether it has this


def keys(layer: Any, other: Any) -> bool:
    """A page of keys and values, or of latents; of a window its last page."""
    if getattr(layer, "keys", None) is None:
        return False
    window = getattr(layer, "is_sliding", False)
    rows = slice(-PAGE_TOKENS, None) if window else ROWS
    layer.keys[..., rows, :] = other.keys[..., rows, :]
    layer.values[..., rows, :] = other.values[..., rows, :]
    return True


def full(layer: Any, other: Any) -> bool:
    return not getattr(layer, "is_sliding", False) and keys(layer, other)


def window(layer: Any, other: Any) -> bool:
    return getattr(layer, "is_sliding", False) and keys(layer, other)


def indexer(layer: Any, other: Any) -> bool:
    if getattr(layer, "indexer_keys", None) is None:
        return False
    layer.indexer_keys[:, ROWS] = other.indexer_keys[:, ROWS]
    return True


def conv(layer: Any, other: Any) -> bool:
    return _state("conv_states", layer, other)


def recurrent(layer: Any, other: Any) -> bool:
    return _state("recurrent_states", layer, other)


def compressed(layer: Any, other: Any) -> bool:
    return _compressed("compressor", layer, other)


def compressed_indexer(layer: Any, other: Any) -> bool:
    return _compressed("indexer", layer, other)


def overlap(layer: Any, other: Any) -> bool:
    for name, rows in getattr(layer, "overlap_kv", {}).items():
        rows.copy_(other.overlap_kv[name])
        layer.overlap_gate[name].copy_(other.overlap_gate[name])
    return hasattr(layer, "overlap_kv")


SPOILERS: dict[str, Spoiler] = {
    one.__name__: one
    for one in (full, window, indexer, conv, recurrent, compressed, compressed_indexer, overlap)
}


def bounds(oracle: Oracle, spoil: Spoiler, seed: int) -> float | None:
    """How many bounds the logits of AFTER tokens are off; None where the model has no such part."""
    model: PreTrainedModel = oracle.models[0]
    draw = np.random.default_rng(seed)
    tokens = draw.integers(0, VOCABULARY, CUT + AFTER).tolist()
    other = draw.integers(0, VOCABULARY, CUT).tolist()
    caches = DynamicCache(config=model.config), DynamicCache(config=model.config)
    cold.in_chunks(model, tokens[:CUT], (CUT,), caches[0])
    cold.in_chunks(model, other, (CUT,), caches[1])
    with torch.inference_mode():
        found = [spoil(*pair) for pair in zip(caches[0].layers, caches[1].layers, strict=True)]
    if not any(found):
        return None
    logits = cold.in_chunks(model, tokens[CUT:], (AFTER,), caches[0])
    off = cold.difference(oracle.logits(tokens)[0][CUT:], logits)
    return off / oracle.bounds[0].largest


def _state(name: str, layer: Any, other: Any) -> bool:
    states = getattr(layer, name, {})
    for number, state in states.items():
        state.copy_(getattr(other, name)[number])
    return bool(states)


def _compressed(name: str, layer: Any, other: Any) -> bool:
    entries = getattr(layer, "compressed_kv", {}).get(name)
    if entries is None:
        return False
    page = PAGE_TOKENS // layer.compress_rate
    rows = slice(PAGE * page, (PAGE + 1) * page)
    entries[:, rows] = other.compressed_kv[name][:, rows]
    return True
