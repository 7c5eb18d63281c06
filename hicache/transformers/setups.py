"""How models are set up, checked before the first call that is served so: what they cache, up to
which length, and whether they may be cut at a page.

Whether they may is seen on random tokens, whole and in two parts. This finds models whose tokens
attend to later ones, and those that keep something beside their cache. A setup is everything of a
computation but the elements of its tensors (see `identity`). A cache has pools for the shapes of
its first setup, and refuses one that needs others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from . import UnsupportedModelError
from .describing import Described, DescribedCache, describe
from .layers import New
from .live import LiveCache

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


class Setup(NamedTuple):
    """longest: of a prompt whose rows depend on its tokens alone."""

    described: Described
    longest: int


class Setups:
    """The setups of the model of one cache."""

    def __init__(self, model: Any, page_size: int) -> None:
        self._model, self._page_size = model, page_size
        self._known: dict[bytes, Setup] = {}
        self._first: Described | None = None

    def checked(self, name: bytes) -> Setup:
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
            _verify(self._model, described.cache, self._page_size)
            if len(self._known) == _MOST:
                del self._known[next(iter(self._known))]
            longest = _longest(self._model.config.get_text_config(decoder=True))
            self._known[name] = Setup(described, longest)
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
    for name, one in adapters.items():
        kind = str(getattr(one.peft_type, "value", one.peft_type))
        by_token = getattr(one, "alora_invocation_tokens", None)
        if one.is_prompt_learning or kind in ("XLORA", "POLY") or by_token:
            raise UnsupportedModelError(
                f"adapter {name}: expected one that changes the model's modules alone, such as "
                f"LoRA, found {kind}; call model.generate"
            )
    return model.get_base_model()


def _verify(model: Any, described: DescribedCache, size: int) -> None:
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
        whole = model(tokens, use_cache=False).logits[0].float()
    apart = (torch.cat(parts).float() - whole).square().mean(dim=1).sqrt()
    worst = apart.reshape(2, size).median(dim=1).values.max()
    exact = model.dtype == parts[0].dtype == torch.float32
    limit = (_EXACT if exact else _ROUGH) * whole.std()
    if not bool(worst <= limit) and bool(whole.isfinite().all()):
        raise UnsupportedModelError(
            f"model {type(model).__name__}: expected the same logits from a prompt that is "
            f"computed in two parts, found a difference of {float(worst):.2g} where rounding "
            f"explains {float(limit):.2g}; its tokens attend to later ones, or it keeps more "
            "than its cache"
        )


def _past(described: DescribedCache, cache: LiveCache, tokens: int) -> list[New]:
    """What a prefix of so many tokens, a page, needs of each layer."""
    past = []
    for one, rows, states in zip(described.layers, cache.taken(), cache.states_now(), strict=True):
        first = {kind.name: kind.first_needed(tokens) for kind in one.rows}
        past.append({**{name: tensor[first[name] :] for name, tensor in rows.items()}, **states})
    return past


def _longest(config: Any) -> int:
    """Tokens up to which a row depends on the tokens before it alone: some rotary embeddings turn
    a token by other angles once a text is longer than those that the model was trained on. Then the
    rows of its first tokens are others, too."""
    known = getattr(config, "rope_parameters", None) or {}
    found = [sys.maxsize]
    for one in (known, *known.values()):
        kind = str(one.get("rope_type", "")) if isinstance(one, Mapping) else ""
        if kind == "longrope":
            found.append(one["original_max_position_embeddings"] - 1)
        elif "dynamic" in kind:
            found.append(config.max_position_embeddings - 1)
    return min(found)
