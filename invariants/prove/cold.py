"""Cold runs: logits of tokens that a model computes without this cache.

`at_once` is one pass without any past. `in_chunks` is a run in several passes, with the library's
own cache between them. `stirred` shows where a model jumps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from hicache.transformers.describing import argument_of

_STIRRED = 4.0  # roundings


def at_once(model: PreTrainedModel, tokens: Sequence[int]) -> torch.Tensor:
    """The logits of all tokens, in fp32: [len(tokens), vocabulary]."""
    with torch.inference_mode():
        return _logits(model(torch.tensor([tokens], device=model.device), use_cache=False))


def in_chunks(
    model: PreTrainedModel,
    tokens: Sequence[int],
    sizes: Iterable[int],
    cache: DynamicCache | None = None,
) -> torch.Tensor:
    """The same in passes of `sizes` tokens, which repeat. cache: what earlier tokens left."""
    cache = DynamicCache(config=model.config) if cache is None else cache
    past = {argument_of(model): cache}
    rows, start = [], 0
    with torch.inference_mode():
        for size in itertools.cycle(sizes):
            if start >= len(tokens):
                break
            chunk = torch.tensor([tokens[start : start + size]], device=model.device)
            rows.append(_logits(model(chunk, use_cache=True, **past)))
            start += size
    return torch.cat(rows)


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two logits. What is not a number is infinitely far."""
    assert one.shape == other.shape, f"logits of {tuple(other.shape)}, not {tuple(one.shape)}"
    found = float((one - other).abs().max()) if one.numel() else 0.0
    return found if found == found else float("inf")


def stirred(model: PreTrainedModel, tokens: Sequence[int], seed: int) -> torch.Tensor:
    """One pass over embeddings that are changed at random, by about a few roundings."""
    draw = torch.Generator().manual_seed(seed)

    def stir(layer: object, arguments: object, embedded: torch.Tensor) -> torch.Tensor:
        size = _STIRRED * torch.finfo(embedded.dtype).eps
        noise = torch.randn(embedded.shape, generator=draw, dtype=torch.float32) * size
        return (embedded * (1 + noise.to(embedded.device))).to(embedded.dtype)

    hook = model.get_input_embeddings().register_forward_hook(stir)
    try:
        return at_once(model, tokens)
    finally:
        hook.remove()


def _logits(output: Any) -> torch.Tensor:
    logits: torch.Tensor = output.logits
    return logits[0].float().cpu()
