"""How models are set up, checked before the first call that is served so: what they cache, up to
which length, and whether they may be cut at a page.

Whether they may is seen on random tokens, whole and in two parts through pages. This finds models
whose tokens attend to later ones, and those that keep something beside their cache.

A setup is everything of a computation but the elements of its tensors (see `computation`). A cache
has pools for the shapes of its first setup, and refuses one that needs others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hicache.core.actions import Prefill, StateSlots
from hicache.memory.pools import PoolTable

from ..building import device_for
from ..describing import Described, describe
from ..errors import UnsupportedModelError
from ..layers.base import STATE
from ..passes import Passes

_MOST = 64  # setups that are remembered
# The difference of logits that rounding explains: root mean squares, in standard deviations.
# Single positions may differ more, where a model selects experts or tokens by scores that are
# nearly equal.
_EXACT, _ROUGH = 1e-2, 0.2
_PAGES = 2  # of each component
# Modules that compute the same in training mode, in which the library leaves those that it adds.
_SAME = (
    *(nn.Linear, nn.Embedding, nn.Identity, nn.ModuleList, nn.ModuleDict),
    *(nn.ParameterList, nn.ParameterDict),
)


class Setup(NamedTuple):
    """longest: of a prompt whose rows depend on its tokens alone."""

    described: Described
    longest: int


class Setups:
    """The setups of the models of one cache."""

    def __init__(self, models: Sequence[Any], page_size: int) -> None:
        self._models, self._page_size = models, page_size
        self._known: dict[bytes, Setup] = {}
        self._first: Setup | None = None

    def checked(self, name: bytes) -> Setup:
        """The setup that the models have now. name: its digest. Raises UnsupportedModelError if a
        cache cannot serve it."""
        found = self._known.get(name)
        if found is None:
            found = self._check()
            if len(self._known) == _MOST:
                del self._known[next(iter(self._known))]
            self._known[name] = found
        self._first = self._first or found
        return found

    def _check(self) -> Setup:
        for model in self._models:
            check_model(model)
        draft = self._models[1] if len(self._models) > 1 else None
        if draft is not None:
            _check_tokens(*self._models)
        described = describe(self._models[0], self._page_size, draft)
        if draft is not None and STATE in described.components:
            raise UnsupportedModelError(
                f"draft {type(draft).__name__}: expected a model and a draft without states, which "
                "cannot take back tokens that are not accepted, found layers with states; leave "
                "the draft out"
            )
        if self._first is not None:
            _compare(self._models[0], self._first.described, described)
        few = dict.fromkeys(described.components, _PAGES)
        device = device_for(self._models[0].device, described, few, dict.fromkeys(few, 0))
        try:
            _verify(self._models, described, device.arena)
        finally:
            device.close()
        return Setup(described, longest_prompt(self._models))


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
    training = next(
        (one for one, part in model.named_modules() if part.training and type(part) not in _SAME),
        None,
    )
    if training is not None:
        where = f" in its module {training}" if training else ""
        raise UnsupportedModelError(
            f"model {name}: expected eval mode, found training mode{where}; call model.eval()"
        )
    places = sorted({str(tensor.device) for tensor in model.parameters()})
    if "meta" in places:
        raise UnsupportedModelError(
            f"model {name}: expected all weights in memory, found some without bytes (device "
            "meta), as of a model that is offloaded; load the whole model to one device"
        )
    if len(places) != 1 or places[0].partition(":")[0] not in ("cpu", "cuda"):
        raise UnsupportedModelError(
            f"model {name}: expected all weights on the CPU or on one CUDA device, found "
            f"{', '.join(places)}"
        )


def _check_tokens(model: Any, draft: Any) -> None:
    """Raises UnsupportedModelError for a draft that reads other tokens, by their number as the
    library does."""
    wanted, found = (one.config.get_text_config().vocab_size for one in (model, draft))
    if wanted != found:
        raise UnsupportedModelError(
            f"draft {type(draft).__name__}: expected the {wanted:,} tokens of the model, found "
            f"{found:,}, so its rows are of other tokens; leave the draft out"
        )


def base_of(model: Any) -> Any:
    """The model itself, or the one inside a wrapper of PEFT, whose modules have the adapters.
    Raises UnsupportedModelError for a wrapper that does more than its modules do."""
    adapters = getattr(model, "peft_config", None)
    if adapters is None or not hasattr(model, "get_base_model"):
        return model
    for name, one in adapters.items():
        kind = str(getattr(one.peft_type, "value", one.peft_type))
        if one.is_prompt_learning or kind in ("XLORA", "POLY"):
            found = kind
        elif getattr(one, "alora_invocation_tokens", None):
            found = "an activated LoRA"
        else:
            continue
        raise UnsupportedModelError(
            f"adapter {name}: expected one that changes the model's modules alone, such as LoRA, "
            f"found {found}, with which rows depend on more than the tokens; call model.generate"
        )
    return model.get_base_model()


def _compare(model: Any, first: Described, now: Described) -> None:
    """Raises UnsupportedModelError if the pools of one setup cannot hold the rows of another."""
    for one, other in zip(first.caches, now.caches, strict=True):
        if [layer.rows for layer in one.layers] != [layer.rows for layer in other.layers]:
            break
    else:
        if first.model.pools == now.model.pools:
            return
    raise UnsupportedModelError(
        f"model {type(model).__name__}: expected to cache {_words(first)}, as when this cache was "
        f"made, found {_words(now)}; make a PrefixCache for the model as it is now"
    )


def _words(described: Described) -> str:
    kinds = {
        f"{one.heads} x {one.head_elements} {str(one.dtype).removeprefix('torch.')}"
        + f" with a window of {one.window_tokens}" * bool(one.window_tokens)
        for cache in described.caches
        for layer in cache.layers
        for one in layer.rows
    }
    count = sum(len(cache.layers) for cache in described.caches)
    return f"{count} layers of {', '.join(sorted(kinds))}"


def _verify(models: Sequence[Any], described: Described, table: PoolTable) -> None:
    """Raises UnsupportedModelError if a model gives other logits over pages. models: with the
    draft, if there is one."""
    size = described.page_size
    passes = Passes(models[0], described, table, *models[1:])
    sequence = passes.sequence()
    draws = torch.Generator().manual_seed(1)
    tokens = torch.randint(described.model.vocabulary, (2 * size,), generator=draws)
    parts = []
    for first in (0, size):
        action = _pass(described, first)
        parts.append(passes.prefill(sequence, tokens.tolist(), action))
    for at, model in enumerate(models):
        with torch.inference_mode():
            logits = model(tokens[None].to(model.device), use_cache=False).logits[0]
        whole = logits.float()
        cut = torch.cat([part[at].float() for part in parts])
        apart = (cut - whole).square().mean(dim=1).sqrt()
        worst = apart.reshape(2, size).median(dim=1).values.max()
        exact = model.dtype == logits.dtype == torch.float32
        limit = (_EXACT if exact else _ROUGH) * whole.std()
        if not bool(worst <= limit) and bool(whole.isfinite().all()):
            raise UnsupportedModelError(
                f"model {type(model).__name__}: expected the same logits from a prompt that is "
                f"computed in two parts, found a difference of {float(worst):.2g} where rounding "
                f"explains {float(limit):.2g}; its tokens attend to later ones, or it keeps more "
                "than its cache"
            )


def _pass(described: Described, first: int) -> Prefill:
    """A pass over one page, on the first pages of the pools."""
    size = described.page_size
    tables = tuple(
        np.arange(_PAGES, dtype=np.int64) for name in described.components if name != STATE
    )
    states: tuple[StateSlots, ...] = ()
    if STATE in described.components:
        source, stored = (1, ()) if first else (-1, ((size, 1),))
        states = (StateSlots(STATE, source, 0, (-1, -1), size, stored),)
    return Prefill(0, 0, first, first + size, tables, (), first > 0, states)


def longest_prompt(models: Sequence[Any]) -> int:
    """Tokens up to which a row depends on the tokens before it alone: some rotary embeddings turn
    a token by other angles once a text is longer than those that the model was trained on. Then the
    rows of its first tokens are others, too (see `pictures.passing_of`)."""
    return min(_longest(model.config.get_text_config(decoder=True)) for model in models)


def _longest(config: Any) -> int:
    known = getattr(config, "rope_parameters", None) or {}
    kinds = [one for one in (known, *known.values()) if isinstance(one, Mapping)]
    found = [sys.maxsize]
    for one in kinds:
        kind = str(one.get("rope_type", ""))
        if kind == "longrope":
            found.append(one["original_max_position_embeddings"] - 1)
        elif "dynamic" in kind:
            found.append(config.max_position_embeddings - 1)
    return min(found)
