"""What a model of the library caches, as pools, and whether a cache can serve it.

`describe` runs a model on a few tokens and looks: the shapes come from the real tensors. Layers
whose rows have the same name and shape share a pool, whose layers are the model's.

A setup is everything of a computation but the elements of its tensors (see `identity`). Before the
first call with one, logits of random tokens, whole and in two parts, show whether prompts may be
cut at a page. This finds models whose tokens attend to later ones, and those that keep something
beside their cache. A cache has pools for the shapes of its first setup, and refuses one that needs
others.
"""

import inspect
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from hicache.models.base import ModelDescription, PoolDescription

from . import UnsupportedModelError
from .layers import FULL, KINDS, ORDER, Described, New, RowsOf
from .live import LiveCache

# The argument of a model that is its cache: releases from 5.24 on have the first.
CACHES = ("cache", "past_key_values", "cache_params")
_PROBE_TOKENS = 4
_MOST = 64  # setups that are remembered
# The difference of logits that rounding explains: root mean squares, in standard deviations.
# Single positions may differ more, where a model selects experts or tokens by scores that are
# nearly equal.
_EXACT, _ROUGH = 1e-2, 0.2
# Modules that compute the same in training mode, in which the library leaves those that it adds.
_SAME = (
    *(nn.Linear, nn.Embedding, nn.Identity, nn.ModuleList, nn.ModuleDict),
    *(nn.ParameterList, nn.ParameterDict),
)


def describe(model: Any, page_size: int) -> Described:
    """The cache of a causal language model of the library, and its pools.

    Raises UnsupportedModelError for a cache layer that `layers` does not describe and for a type of
    elements that pools do not have; and CallerError for a page size that the pools cannot use.
    """
    names = inspect.signature(type(model).forward).parameters
    argument = next((name for name in CACHES if name in names), CACHES[-1])
    cache = DynamicCache(config=model.config)
    template = deepcopy(cache.layers)
    tokens = torch.ones((1, _PROBE_TOKENS), dtype=torch.long, device=model.device)
    unknown = sorted({type(item).__name__ for item in template} - KINDS.keys())
    if unknown:
        raise UnsupportedModelError(
            f"model {type(model).__name__}: expected cache layers of {', '.join(KINDS)}, found "
            f"{', '.join(unknown)}; describe it in hicache/transformers/layers.py"
        )
    try:
        with torch.inference_mode():
            model(tokens, **{argument: cache}, use_cache=True)
    except Exception as error:  # of many kinds, where a model needs a cache or arguments of its own
        text = " ".join(str(error).split())
        raise UnsupportedModelError(
            f"model {type(model).__name__}: expected to run {_PROBE_TOKENS} tokens with the "
            f"library's DynamicCache, found {type(error).__name__}: {text}"
        ) from error
    pools: dict[str, PoolDescription] = {}
    layers = [KINDS[type(layer).__name__](layer) for layer in cache.layers]
    for number, layer in enumerate(layers):
        layer.rows = _named(pools, layer.rows, number)
    if FULL not in {pool.component for pool in pools.values()}:
        logical = PoolDescription("pages", FULL, "logical", (), (), 1, 0)
        pools = {"pages": logical, **pools}
    ordered = sorted(pools.values(), key=lambda pool: ORDER.index(pool.component))
    for pool in ordered:
        pool.rows_per_page(page_size)
    name, family = model.config.name_or_path or type(model).__name__, str(model.config.model_type)
    source = "the model that was loaded"
    record = ModelDescription(name, len(layers), tuple(ordered), family, source)
    longest = _longest(model, model.config.get_text_config(decoder=True))
    return Described(record, template, tuple(layers), argument, longest)


def _named(pools: dict[str, PoolDescription], rows: RowsOf, number: int) -> RowsOf:
    """Add layer `number` to the pools of its rows, and make those that are not there yet. Returns
    the rows with the names of these pools."""
    result = []
    for row in rows:
        for suffix in ("", *range(2, 1000)):
            pool = replace(row.pool, name=f"{row.name}{suffix}")
            there = pools.get(pool.name, pool)
            if replace(there, layers=()) == pool:
                break
        pools[pool.name] = replace(there, layers=(*there.layers, number))
        result.append(replace(row, pool=pool))
    return tuple(result)


class Setups:
    """The setups of the model of one cache."""

    def __init__(self, model: Any, page_size: int) -> None:
        self._model, self._page_size = model, page_size
        self._known: dict[bytes, Described] = {}
        self._first: Described | None = None

    def checked(self, name: bytes) -> Described:
        """The setup that the model has now. name: its digest. Raises UnsupportedModelError if a
        cache cannot serve it."""
        if name not in self._known:
            check_model(self._model)
            described = describe(self._model, self._page_size)
            first = self._first = self._first or described
            if first.model.pools != described.model.pools:
                raise UnsupportedModelError(
                    f"model {type(self._model).__name__}: expected the pools that it had when this "
                    "cache was made, found others; make a PrefixCache for the model as it is now"
                )
            _verify(self._model, described, self._page_size)
            if len(self._known) == _MOST:
                del self._known[next(iter(self._known))]
            self._known[name] = described
        return self._known[name]


def check_model(model: Any) -> None:
    """Raises UnsupportedModelError for what no cache can serve."""
    name = type(model).__name__
    if not hasattr(model, "generate") or not hasattr(model, "config"):
        raise UnsupportedModelError(
            f"model: expected a causal language model of transformers, found {name}"
        )
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(
            f"model {name}: expected a decoder-only model, found an encoder-decoder; use "
            "model.generate for it"
        )
    for where, part in model.named_modules():
        if part.training and type(part) not in _SAME:
            raise UnsupportedModelError(
                f"model {name}: expected eval mode, found training mode in module {where!r}; call "
                "model.eval()"
            )
    places = sorted({str(tensor.device) for tensor in model.parameters()})
    if len(places) != 1 or places[0].partition(":")[0] not in ("cpu", "cuda"):
        raise UnsupportedModelError(
            f"model {name}: expected all weights in memory of the CPU or of one CUDA device, found "
            f"{', '.join(places)}; load the whole model to one device"
        )


def base_of(model: Any) -> Any:
    """The model itself, or the one inside a wrapper of PEFT, whose modules have the adapters.
    Raises UnsupportedModelError for a wrapper that does more than its modules do."""
    adapters = getattr(model, "peft_config", None)
    if adapters is None or not hasattr(model, "get_base_model"):
        return model
    for name, adapter in adapters.items():
        kind = str(getattr(adapter.peft_type, "value", adapter.peft_type))
        by_token = getattr(adapter, "alora_invocation_tokens", None)
        if adapter.is_prompt_learning or kind in ("XLORA", "POLY") or by_token:
            raise UnsupportedModelError(
                f"adapter {name}: expected one that changes the model's modules alone, such as "
                f"LoRA, found {kind}; call model.generate"
            )
    return model.get_base_model()


def _verify(model: Any, described: Described, size: int) -> None:
    """Raises UnsupportedModelError if a model gives other logits in two parts, of a page each."""
    draws = torch.Generator().manual_seed(1)
    vocabulary = model.config.get_text_config().vocab_size
    tokens = torch.randint(vocabulary, (1, 2 * size), generator=draws).to(model.device)
    with torch.inference_mode():
        first = LiveCache(described)
        parts = [model(tokens[:, :size], **{described.argument: first}, use_cache=True).logits[0]]
        past = _past(described, first, size)
        second = LiveCache(described, [0] * size, past)
        parts += [model(tokens[:, size:], **{described.argument: second}, use_cache=True).logits[0]]
        full = model(tokens, use_cache=False).logits[0].float()
    apart = (torch.cat(parts).float() - full).square().mean(dim=1).sqrt()
    worst = apart.reshape(2, size).median(dim=1).values.max()
    exact = model.dtype == parts[0].dtype == torch.float32
    limit = (_EXACT if exact else _ROUGH) * full.std()
    if not bool(worst <= limit) and bool(full.isfinite().all()):
        raise UnsupportedModelError(
            f"model {type(model).__name__}: expected the same logits from a prompt that is "
            f"computed in two parts, found a difference of {float(worst):.2g} where rounding "
            f"explains {float(limit):.2g}; its tokens attend to later ones, or it keeps more "
            "than its cache"
        )


def _past(described: Described, cache: LiveCache, tokens: int) -> list[New]:
    """What a prefix of so many tokens, a page, needs of each layer."""
    past = []
    for layer, rows, state in zip(described.layers, cache.taken(), cache.states_now(), strict=True):
        first = {kind.name: kind.first_needed(tokens) for kind in layer.rows}
        past.append({**{name: tensor[first[name] :] for name, tensor in rows.items()}, **state})
    return past


def _longest(model: Any, config: Any) -> int:
    """Tokens up to which a row depends on the tokens before it alone: some rotary embeddings turn
    a token by other angles once a text is longer than those that the model was trained on. Then the
    rows of its first tokens are others, too. Dynamic ones take them back by the limit that the
    configuration had when the model was made."""
    known = getattr(config, "rope_parameters", None) or {}
    result = [sys.maxsize]
    result += [
        getattr(part, "original_max_seq_len", sys.maxsize) - 1
        for part in model.modules()
        if "dynamic" in str(getattr(part, "rope_type", ""))
    ]
    for item in (known, *known.values()):
        kind = str(item.get("rope_type", "")) if isinstance(item, Mapping) else ""
        if kind == "longrope":
            result.append(item["original_max_position_embeddings"] - 1)
        elif "dynamic" in kind:
            result.append(config.max_position_embeddings - 1)
    return min(result)
