"""What `generate` is given: the prompt, and what cannot be served from a cache.

Whatever changes the rows of a prompt's tokens, beside the tokens, is refused. Does not generate.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers.utils import TransformersKwargs

from .errors import UnsupportedArgumentError

_CACHES = ("past_key_values", "cache_params")
# What a pass may be told without other rows, beside output_*. More is checked elsewhere.
_HARMLESS = ("attention_mask", "use_cache", "return_dict", "logits_to_keep", "input_ids")
_ELSEWHERE = "; call model.generate for it"


def prompt_of(inputs: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """The prompt, int64[1, n]. Removes it from the arguments. Raises UnsupportedArgumentError for
    anything else."""
    for name in ("input_ids", "inputs"):
        if name in kwargs and kwargs[name] is not None:
            if inputs is not None:
                raise UnsupportedArgumentError(f"{name}: expected one prompt, found two")
            inputs = kwargs[name]
        kwargs.pop(name, None)
    if not isinstance(inputs, torch.Tensor) or inputs.ndim != 2 or inputs.is_floating_point():
        found = tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
        raise UnsupportedArgumentError(
            f"input_ids: expected a tensor of token ids, [1, n], found {found}{_ELSEWHERE}"
        )
    if inputs.shape[0] != 1:
        raise UnsupportedArgumentError(
            f"input_ids: expected a batch of 1, found {inputs.shape[0]}{_ELSEWHERE}"
        )
    if not inputs.shape[1]:
        raise UnsupportedArgumentError("input_ids: expected at least one token, found none")
    return inputs


def check(model: Any, inputs: torch.Tensor, kwargs: dict[str, Any]) -> None:
    """Raises UnsupportedArgumentError for arguments that `generate` of the model takes and a cache
    cannot serve. Removes the name of the cache that the library makes by default: it takes no name
    together with a cache."""
    _check_config(model, kwargs)
    _check_mask(model, inputs, kwargs)
    _check_passed(model, kwargs)
    if _setting(model, kwargs, "cache_implementation") == "dynamic":
        kwargs["cache_implementation"] = None


def _setting(model: Any, kwargs: dict[str, Any], name: str) -> Any:
    """The value that the library will use: what a given generation_config leaves open, that of the
    model says."""
    if name in kwargs:
        return kwargs[name]
    configs = (kwargs.get("generation_config"), model.generation_config)
    found = (getattr(config, name, None) for config in configs)
    return next((value for value in found if value is not None), None)


def _check_config(model: Any, kwargs: dict[str, Any]) -> None:
    for name, expected in (
        *(("num_beams", (None, 1)), ("num_return_sequences", (None, 1))),
        # the library makes a dynamic cache where hybrid is asked for
        *(("use_cache", (None, True)), ("cache_implementation", (None, "hybrid", "dynamic"))),
        ("token_healing", (None, False)),
    ):
        value = _setting(model, kwargs, name)
        if value not in expected:
            raise UnsupportedArgumentError(
                f"{name}: expected {expected[-1]}, found {value!r}{_ELSEWHERE}"
            )
    for name in _CACHES:
        if kwargs.get(name) is not None:
            raise UnsupportedArgumentError(
                f"{name}: expected none, since the cache makes its own, found "
                f"{type(kwargs[name]).__name__}{_ELSEWHERE}"
            )


def _check_mask(model: Any, inputs: torch.Tensor, kwargs: dict[str, Any]) -> None:
    """Raises for padding, which the library infers from the pad token where it is given no mask."""
    mask = kwargs.get("attention_mask")
    if mask is not None:
        if mask.shape != inputs.shape or not bool((mask == 1).all()):
            raise UnsupportedArgumentError(
                f"attention_mask: expected ones for the {inputs.shape[1]} tokens of the prompt, "
                "found another mask; cut the padding off"
            )
        return
    pad, eos = (_setting(model, kwargs, name) for name in ("pad_token_id", "eos_token_id"))
    if pad is None or pad in (eos if isinstance(eos, list | tuple) else [eos]):
        return
    if bool((inputs == int(pad)).any()):
        raise UnsupportedArgumentError(
            f"input_ids: expected no pad token ({int(pad)}), which the library would mask; cut "
            "the padding off, or pass attention_mask=torch.ones_like(input_ids)"
        )


def _check_passed(model: Any, kwargs: dict[str, Any]) -> None:
    """Raises for what the library would pass on to the code of the model or of attention. It takes
    no other names."""
    own = inspect.signature(type(model).forward).parameters
    for name in (*own, *TransformersKwargs.__optional_keys__, "mm_encoder_outputs"):
        value = kwargs.get(name)
        if value is None or name in _HARMLESS or name.startswith("output_"):
            continue
        found = "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UnsupportedArgumentError(
            f"{name}: expected none, since reused tokens were computed without it, found {found}"
            f"{_ELSEWHERE}"
        )
