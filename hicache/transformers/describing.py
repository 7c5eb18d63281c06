"""What a model of the library caches, as pools: `describe` runs it on a few tokens and looks.

Layers whose rows have the same name and shape share a pool, whose layers are the model's. The
shapes come from the real tensors, and are compared with what the configuration says. Does not move
rows; see `moving` and `passes`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import DynamicCache

from hicache import registry
from hicache.core.components import MambaSettings, SwaSettings
from hicache.core.config import ComponentSettings, Config
from hicache.models.base import ModelDescription, PoolDescription

from .errors import UnsupportedModelError
from .layers.base import FULL, STATE, WINDOW, LayerKind, Rows

LAYERS = "hicache.transformers.layers"
# Types of elements by the names of pools.
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# The argument of a model that is its cache: releases from 5.24 on have the first.
CACHES = ("cache", "past_key_values", "cache_params")
_PROBE_TOKENS = 4
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ORDER = (FULL, WINDOW, STATE)


@dataclass(frozen=True, slots=True)
class DescribedLayer:
    """One layer of a library cache. pools: by name of its rows, the pool that has them. number:
    among all layers of the description."""

    kind: LayerKind
    rows: tuple[Rows, ...]
    pools: Mapping[str, str]
    number: int


@dataclass(frozen=True, slots=True)
class DescribedCache:
    """The cache of one model. template: its layers, as the library makes them, never used."""

    template: Sequence[Any]
    layers: tuple[DescribedLayer, ...]
    argument: str

    def fresh(self) -> list[Any]:
        """New layers that have seen no token."""
        made = deepcopy(list(self.template))
        for layer, described in zip(made, self.layers, strict=True):
            described.kind.prepare(layer)
        return made


@dataclass(frozen=True, slots=True)
class Described:
    """The pools of a model, or of a model and its draft. caches: in this order.

    window_tokens: the widest window; 0 without one.
    """

    model: ModelDescription
    page_size: int
    caches: tuple[DescribedCache, ...]
    window_tokens: int

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(name for name in _ORDER if name in self.model.components)

    def config(
        self,
        device_pages: Mapping[str, int],
        host_pages: Mapping[str, int],
        interval_tokens: int = 0,
        states_per_path: int = 0,
        **fields: Any,
    ) -> Config:
        """The configuration of a core for this model. device_pages, host_pages: by component.
        interval_tokens, states_per_path: of states, as in `MambaSettings`. Raises CallerError as
        `Config` does."""
        settings: list[ComponentSettings] = []
        if WINDOW in self.components:
            settings.append(SwaSettings(self.window_tokens))
        if STATE in self.components:
            settings.append(MambaSettings(interval_tokens, states_per_path))
        return Config(
            page_size=self.page_size,
            device_pages=tuple(device_pages[name] for name in self.components),
            host_pages=tuple(host_pages[name] for name in self.components),
            components=self.components,
            settings=tuple(settings),
            **fields,
        )


def describe(model: Any, page_size: int, draft: Any = None) -> Described:
    """The pools of a causal language model of the library, and of its draft model if it has one.

    Raises UnsupportedModelError for a cache layer that no file in `layers` describes, for a type of
    elements that pools do not have, and for tensors that are not as the configuration says; and
    CallerError for a page size that the pools cannot use.
    """
    known = kinds()
    caches: list[DescribedCache] = []
    pools: dict[str, PoolDescription] = {}
    count = 0
    for prefix, one in (("", model), ("draft_", draft)):
        if one is not None:
            caches.append(_cache(one, known, pools, prefix, count))
            count += len(caches[-1].layers)
    if FULL not in {pool.component for pool in pools.values()}:
        logical = PoolDescription("pages", FULL, "logical", (), (), 1, 0)
        pools = {"pages": logical, **pools}
    ordered = sorted(pools.values(), key=lambda pool: _ORDER.index(pool.component))
    for pool in ordered:
        pool.rows_per_page(page_size)
    return Described(
        _model(model, tuple(ordered), count), page_size, tuple(caches), _widest(caches)
    )


def _widest(caches: Iterable[DescribedCache]) -> int:
    rows = [one for cache in caches for layer in cache.layers for one in layer.rows]
    return max((one.window_tokens for one in rows), default=0)


def kinds() -> dict[str, LayerKind]:
    """Every kind of layer, by the names of the library's classes."""
    found: dict[str, LayerKind] = {}
    for name in registry.names(LAYERS):
        kind: LayerKind
        for kind in registry.load(LAYERS, name).KINDS:
            found.update(dict.fromkeys(kind.classes, kind))
    return found


def _cache(
    model: Any,
    known: Mapping[str, LayerKind],
    pools: dict[str, PoolDescription],
    prefix: str,
    first: int,
) -> DescribedCache:
    """Describe the layers of one model, and add their pools. first: number of its first layer."""
    argument = argument_of(model)
    cache = DynamicCache(config=model.config)
    template = deepcopy(cache.layers)
    tokens = torch.ones((1, _PROBE_TOKENS), dtype=torch.long, device=model.device)
    for layer in template:
        if type(layer).__name__ not in known:
            raise UnsupportedModelError(
                f"model {type(model).__name__}: expected cache layers of the classes "
                f"{', '.join(sorted(known))}, found {type(layer).__name__}; add a file that "
                f"describes it in {LAYERS.replace('.', '/')}"
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
        kind = known[type(layer).__name__]
        rows = kind.rows(layer)
        _check(model, number, rows)
        names = _named(pools, rows, prefix, first + number, model)
        layers.append(DescribedLayer(kind, rows, names, first + number))
    return DescribedCache(template, tuple(layers), argument)


def argument_of(model: Any) -> str:
    """The name of the argument under which the model takes its cache."""
    names = inspect.signature(type(model).forward).parameters
    return next((name for name in CACHES if name in names), CACHES[-1])


def _named(
    pools: dict[str, PoolDescription],
    rows: Sequence[Rows],
    prefix: str,
    number: int,
    model: Any,
) -> dict[str, str]:
    """Add layer `number` to the pools of its rows, and make those that are not there yet. Returns
    the pools' names, by name of the rows."""
    names: dict[str, str] = {}
    for one in rows:
        wanted = _pool(one, names, pools, prefix, model)
        for suffix in ("", *range(2, 1000)):
            name = f"{wanted.name}{suffix}"
            there = pools.get(name)
            if there is None or replace(there, layers=()) == replace(wanted, name=name):
                break
        layers = (*there.layers, number) if there is not None else (number,)
        pools[name] = replace(wanted, name=name, layers=layers)
        names[one.name] = name
    return names


def _pool(
    one: Rows,
    names: Mapping[str, str],
    pools: Mapping[str, PoolDescription],
    prefix: str,
    model: Any,
) -> PoolDescription:
    """The pool of rows like these, without layers. A draft's pools follow the model's."""
    anchor = names.get(one.follows, "")
    if prefix and not anchor:
        own = [pool.name for pool in pools.values() if pool.component == one.component]
        anchor = next((name for name in own if not name.startswith(prefix)), "")
    dtype = _NAMES.get(one.dtype)
    if dtype is None:
        raise UnsupportedModelError(
            f"model {type(model).__name__}: expected a cache of {', '.join(DTYPES)}, "
            f"found {one.name} of {one.dtype}; load the model with one of these types"
        )
    state = one.component == STATE or one.per_page
    return PoolDescription(
        name=f"{prefix}{one.name}",
        component=one.component,
        kind=one.kind,
        layers=(),
        parts=one.parts,
        heads=one.heads,
        head_elements=one.head_elements,
        dtype=dtype,
        anchor=anchor,
        compression=one.tokens_per_row,
        page_rows=1 if state else 0,
        window=one.window_tokens if one.component == WINDOW else (1 if state else 0),
    )


def _check(model: Any, number: int, rows: Sequence[Rows]) -> None:
    """Compare keys and values with what the configuration says of their heads and widths."""
    config = model.config.get_text_config(decoder=True)
    per_layer = getattr(config, "per_layer_config", None)
    config = per_layer[number] if per_layer is not None else config
    heads = getattr(config, "num_key_value_heads", None)
    width = getattr(config, "head_dim", None)
    for one in rows:
        if one.parts != ("k", "v") or heads is None or width is None:
            continue
        if (one.heads, one.head_elements) != (heads, width):
            raise UnsupportedModelError(
                f"model {type(model).__name__}, layer {number}: expected {heads} heads of {width} "
                f"elements, as the configuration says, found tensors of {one.heads} heads of "
                f"{one.head_elements}"
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
