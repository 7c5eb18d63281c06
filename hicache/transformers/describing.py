"""What a model of the library caches, as pools: `describe` runs it on a few tokens and looks.

Layers whose rows have the same name and shape share a pool, whose layers are the model's. The
shapes come from the real tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import DynamicCache

from hicache.core.components import MambaSettings, SwaSettings
from hicache.core.config import Config
from hicache.core.entries import ComponentSettings
from hicache.models.base import ModelDescription, PoolDescription

from . import UnsupportedModelError
from .layers import FULL, KINDS, STATE, WINDOW, Empty, Rows

# Types of elements by the names of pools.
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# The argument of a model that is its cache: releases from 5.24 on have the first.
CACHES = ("cache", "past_key_values", "cache_params")
_PROBE_TOKENS = 4
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ORDER = (FULL, WINDOW, STATE)


@dataclass(frozen=True, slots=True)
class DescribedLayer:
    """One layer of a library cache. pools: by name of its rows, the pool that has them."""

    kind: Empty
    rows: tuple[Rows, ...]
    pools: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DescribedCache:
    """The cache of one model. template: its layers, as the library makes them, never used."""

    template: Sequence[Any]
    layers: tuple[DescribedLayer, ...]
    argument: str

    def fresh(self) -> list[Any]:
        """New layers that have seen no token."""
        return deepcopy(list(self.template))


@dataclass(frozen=True, slots=True)
class Described:
    """The pools of a model. window_tokens: the widest window; 0 without one."""

    model: ModelDescription
    page_size: int
    cache: DescribedCache
    window_tokens: int

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(name for name in _ORDER if name in self.model.components)

    def config(
        self, device_pages: Mapping[str, int], host_pages: Mapping[str, int], interval_tokens: int
    ) -> Config:
        """The configuration of a core for this model. device_pages, host_pages: by component.
        interval_tokens: between states. Raises CallerError as `Config` does."""
        settings: list[ComponentSettings] = []
        if WINDOW in self.components:
            settings.append(SwaSettings(self.window_tokens))
        if STATE in self.components:
            settings.append(MambaSettings(interval_tokens, 0))
        return Config(
            page_size=self.page_size,
            device_pages=tuple(device_pages[name] for name in self.components),
            host_pages=tuple(host_pages[name] for name in self.components),
            components=self.components,
            settings=tuple(settings),
        )


def describe(model: Any, page_size: int) -> Described:
    """The pools of a causal language model of the library.

    Raises UnsupportedModelError for a cache layer that `layers` does not describe and for a type of
    elements that pools do not have; and CallerError for a page size that the pools cannot use.
    """
    pools: dict[str, PoolDescription] = {}
    cache = _cache(model, pools)
    if FULL not in {pool.component for pool in pools.values()}:
        logical = PoolDescription("pages", FULL, "logical", (), (), 1, 0)
        pools = {"pages": logical, **pools}
    ordered = sorted(pools.values(), key=lambda pool: _ORDER.index(pool.component))
    for pool in ordered:
        pool.rows_per_page(page_size)
    rows = [one for layer in cache.layers for one in layer.rows]
    widest = max((one.window_tokens for one in rows), default=0)
    record = _model(model, tuple(ordered), len(cache.layers))
    return Described(record, page_size, cache, widest)


def _cache(model: Any, pools: dict[str, PoolDescription]) -> DescribedCache:
    """Describe the layers of a model, and add their pools."""
    argument = argument_of(model)
    cache = DynamicCache(config=model.config)
    template = deepcopy(cache.layers)
    tokens = torch.ones((1, _PROBE_TOKENS), dtype=torch.long, device=model.device)
    unknown = sorted({type(one).__name__ for one in template} - KINDS.keys())
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
    layers = []
    for number, layer in enumerate(cache.layers):
        kind = KINDS[type(layer).__name__]
        rows = kind.rows(layer)
        layers.append(DescribedLayer(kind, rows, _named(pools, rows, number, model)))
    return DescribedCache(template, tuple(layers), argument)


def argument_of(model: Any) -> str:
    """The name of the argument under which the model takes its cache."""
    names = inspect.signature(type(model).forward).parameters
    return next((name for name in CACHES if name in names), CACHES[-1])


def _named(
    pools: dict[str, PoolDescription],
    rows: Sequence[Rows],
    number: int,
    model: Any,
) -> dict[str, str]:
    """Add layer `number` to the pools of its rows, and make those that are not there yet. Returns
    the pools' names, by name of the rows."""
    names: dict[str, str] = {}
    for one in rows:
        wanted = _pool(one, names, model)
        for suffix in ("", *range(2, 1000)):
            name = f"{wanted.name}{suffix}"
            there = pools.get(name)
            if there is None or replace(there, layers=()) == replace(wanted, name=name):
                break
        layers = (*there.layers, number) if there is not None else (number,)
        pools[name] = replace(wanted, name=name, layers=layers)
        names[one.name] = name
    return names


def _pool(one: Rows, names: Mapping[str, str], model: Any) -> PoolDescription:
    """The pool of rows like these, without layers."""
    dtype = _NAMES.get(one.dtype)
    if dtype is None:
        raise UnsupportedModelError(
            f"model {type(model).__name__}: expected a cache of {', '.join(DTYPES)}, "
            f"found {one.name} of {one.dtype}; load the model with one of these types"
        )
    return PoolDescription(
        name=one.name,
        component=one.component,
        kind=one.kind,
        layers=(),
        parts=one.parts,
        heads=one.heads,
        head_elements=one.head_elements,
        dtype=dtype,
        anchor=names.get(one.follows, ""),
        page_rows=int(one.component == STATE),
        window=one.window_tokens if one.component == WINDOW else int(one.component == STATE),
    )


def _model(model: Any, pools: tuple[PoolDescription, ...], layers: int) -> ModelDescription:
    """The record of the model. What only times depend on is left at its least."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_attention_heads", None) or 1
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    weights = sum(one.numel() for one in model.parameters())
    return ModelDescription(
        name=config.name_or_path or type(model).__name__,
        family=str(config.model_type),
        source="the model that was loaded",
        layers=layers,
        hidden_size=config.hidden_size,
        vocabulary=config.vocab_size,
        attention_heads=heads,
        score_elements=width,
        value_elements=width,
        decode_score_elements=width,
        decode_value_elements=width,
        parameters=weights,
        active_parameters=weights,
        experts=0,
        experts_per_token=0,
        embeddings=2,
        weight_bytes=sum(one.numel() * one.element_size() for one in model.parameters()),
        expert_bytes=0,
        pools=pools,
    )
