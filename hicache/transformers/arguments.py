"""What the arguments of a cache may be, and those of `generate`: all are checked before anything
has happened.

Whatever changes the rows of a prompt's tokens, beside the tokens, is refused. Does not generate.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers.utils import TransformersKwargs

from hicache.core.errors import CallerError
from hicache.storage.base import StorageOptions

from .building import Sizes, Store
from .describing import CACHES
from .errors import UnsupportedArgumentError

_MOST_TEXT = 200  # characters of a revision, which is a part of longer text
_MOST_TOKENS = 1 << 40
_MOST_BYTES = 1 << 60
_MOST_SECONDS = 1_000_000
_SHOWN = 40  # characters of a value that is wrong
WEIGHTS = ("every_call", "versions")
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
    for name in CACHES:
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


def check_options(sizes: Sizes, store: Store, wait_s: Any, check_weights: Any) -> None:
    """Raises CallerError for a value that cannot be used."""
    _check_count("page_size", sizes.page_size, 1)
    _check_count("device_tokens", sizes.device_tokens, 2 * sizes.page_size, ", two pages")
    _check_count("host_tokens", sizes.host_tokens, 0)
    _check_count("interval_tokens", sizes.interval_tokens, 1)
    _check_count("storage_bytes", store.size_bytes, 0, most=_MOST_BYTES)
    StorageOptions(timeout_s=store.timeout_s)
    if store.address is not None and not isinstance(store.address, str):
        raise CallerError(
            f"storage: expected an address such as file:DIR, found {_shown(store.address)}"
        )
    if store.address is not None and sizes.host_tokens < sizes.page_size:
        raise CallerError(
            f"host_tokens: expected at least {sizes.page_size}, a page, since storage is filled "
            f"from host memory, found {sizes.host_tokens}; give host_tokens or leave storage out"
        )
    revision = store.revision
    if not isinstance(revision, str) or not revision.isprintable() or len(revision) > _MOST_TEXT:
        long = isinstance(revision, str) and len(revision) > _MOST_TEXT
        found = f"{len(revision)} characters" if long else _shown(revision)
        raise CallerError(
            f"revision: expected a text of at most {_MOST_TEXT} printable characters, found "
            f"{found}; give another name"
        )
    check_seconds("wait_s", wait_s)
    if not isinstance(check_weights, str) or check_weights not in WEIGHTS:
        raise CallerError(
            f"check_weights: expected {' or '.join(WEIGHTS)}, found {_shown(check_weights)}"
        )


def _check_count(
    name: str, value: Any, least: int, what: str = "", most: int = _MOST_TOKENS
) -> None:
    if type(value) is not int:
        raise CallerError(
            f"{name}: expected a whole number, at least {least}{what}, found {_shown(value)}"
        )
    if value < least:
        raise CallerError(f"{name}: expected at least {least}{what}, found {_shown(value)}")
    if value > most:
        raise CallerError(f"{name}: expected at most {most:,}, found {_shown(value)}")


def check_seconds(name: str, value: Any) -> None:
    """Raises CallerError for what is no time to wait."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not 0 <= value <= _MOST_SECONDS:
        raise CallerError(
            f"{name}: expected seconds, 0 to {_MOST_SECONDS:,}, found {_shown(value)}"
        )


def _shown(value: Any) -> str:
    """A wrong value, or its type, for a message: short, and on one line."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return repr(value[:_SHOWN]) + "..." * (len(value) > _SHOWN)
    if value is None or isinstance(value, int | float):
        return repr(value)
    return type(value).__name__
