"""What the arguments of a cache may be, and those of `generate`: all are checked before anything
has happened.

Whatever changes the rows of a prompt's tokens, beside the tokens, is refused.
"""

import inspect
from typing import Any

import torch
from transformers.utils import TransformersKwargs

from hicache.core.errors import CallerError
from hicache.storage.base import StorageOptions

from . import UnsupportedArgumentError
from .describing import CACHES
from .engine import Options

_MOST_TOKENS = 1 << 40
_MOST_SECONDS = 1_000_000
# What a pass may be told without other rows, beside output_*. More is checked elsewhere.
_HARMLESS = ("attention_mask", "use_cache", "return_dict", "logits_to_keep", "input_ids")


def prompt_of(inputs: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """The prompt, int64[1, n]. Removes it from the arguments. Raises UnsupportedArgumentError for
    anything else."""
    for name in ("input_ids", "inputs"):
        value = kwargs.pop(name, None)
        if value is not None and inputs is not None:
            raise _refusal(name, "one prompt", "two")
        inputs = value if value is not None else inputs
    if not isinstance(inputs, torch.Tensor) or inputs.ndim != 2 or inputs.is_floating_point():
        shown = tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
        raise _refusal("input_ids", "a tensor of token ids, [1, n]", shown)
    if inputs.shape[0] != 1 or not inputs.shape[1]:
        raise _refusal("input_ids", "a batch of 1, at least one token", tuple(inputs.shape))
    return inputs


def check(model: Any, inputs: torch.Tensor, kwargs: dict[str, Any]) -> None:
    """Raises UnsupportedArgumentError for arguments that `generate` of the model takes and a cache
    cannot serve. Removes the name of the cache that the library makes by default: it takes no name
    together with a cache."""
    for name, expected in (
        *(("num_beams", (None, 1)), ("num_return_sequences", (None, 1))),
        # the library makes a dynamic cache where hybrid is asked for
        *(("use_cache", (None, True)), ("cache_implementation", (None, "hybrid", "dynamic"))),
        ("token_healing", (None, False)),
    ):
        value = _setting(model, kwargs, name)
        if value not in expected:
            raise _refusal(name, repr(expected[-1]), repr(value))
    for name in CACHES:
        if kwargs.get(name) is not None:
            raise _refusal(name, "none, since the cache makes its own", type(kwargs[name]).__name__)
    _check_mask(model, inputs, kwargs)
    # What the library would pass on to the code of the model or of attention. It takes no other
    # names.
    own = inspect.signature(type(model).forward).parameters
    for name in (*own, *TransformersKwargs.__optional_keys__, "mm_encoder_outputs"):
        value = kwargs.get(name)
        if value is not None and name not in _HARMLESS and not name.startswith("output_"):
            shown = "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__
            raise _refusal(name, "none, since reused tokens were computed without it", shown)
    if _setting(model, kwargs, "cache_implementation") == "dynamic":
        kwargs["cache_implementation"] = None


def _refusal(name: str, expected: str, result: Any) -> UnsupportedArgumentError:
    return UnsupportedArgumentError(
        f"{name}: expected {expected}, found {result}; call model.generate for it"
    )


def is_assisted(model: Any, kwargs: dict[str, Any]) -> bool:
    """Whether candidates are computed that may be taken back: then nothing is reused or kept."""
    names = ("assistant_model", "prompt_lookup_num_tokens", "assistant_early_exit", "use_mtp")
    settings = (_setting(model, kwargs, name) for name in names)
    return any(value is not None and value is not False for value in settings)


def _setting(model: Any, kwargs: dict[str, Any], name: str) -> Any:
    """The value that the library will use: what a given generation_config leaves open, that of the
    model says."""
    if name in kwargs:
        return kwargs[name]
    configs = (kwargs.get("generation_config"), model.generation_config)
    items = (getattr(config, name, None) for config in configs)
    return next((value for value in items if value is not None), None)


def _check_mask(model: Any, inputs: torch.Tensor, kwargs: dict[str, Any]) -> None:
    """Raises for padding, which the library infers from the pad token where it is given no mask."""
    mask = kwargs.get("attention_mask")
    if mask is not None:
        if mask.shape != inputs.shape or not bool((mask == 1).all()):
            expected = f"ones for the {inputs.shape[1]} tokens of the prompt, without padding"
            raise _refusal("attention_mask", expected, "another mask")
        return
    pad, eos = (_setting(model, kwargs, name) for name in ("pad_token_id", "eos_token_id"))
    if pad is None or pad in (eos if isinstance(eos, list | tuple) else [eos]):
        return
    if bool((inputs == int(pad)).any()):
        raise UnsupportedArgumentError(
            f"input_ids: expected no pad token ({int(pad)}), which the library would mask; pass "
            "attention_mask=torch.ones_like(input_ids) if it is none"
        )


def check_options(options: Options) -> None:
    """Raises CallerError for a value that cannot be used."""
    page = options.page_size
    for name, least, most in (
        *(("page_size", 1, _MOST_TOKENS), ("device_tokens", 1, _MOST_TOKENS)),
        *(("host_tokens", 0, _MOST_TOKENS), ("interval_tokens", 1, _MOST_TOKENS)),
    ):
        value = getattr(options, name)
        least = 2 * page if name == "device_tokens" else least
        if type(value) is not int or not least <= value <= most:
            raise CallerError(
                f"{name}: expected a whole number, at least {least}, at most {most:,}, found "
                f"{_shown(value)}"
            )
    StorageOptions(timeout_s=options.timeout_s)
    if not isinstance(options.storage, str | None):
        raise CallerError(
            f"storage: expected an address such as file:DIR, found {_shown(options.storage)}"
        )
    if options.storage is not None and options.host_tokens < page:
        raise CallerError(
            f"host_tokens: expected at least {page}, a page, since storage is filled from host "
            f"memory, found {options.host_tokens}"
        )
    check_seconds("wait_s", options.wait_s)


def check_seconds(name: str, value: Any) -> None:
    """Raises CallerError for what is no time to wait."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not 0 <= value <= _MOST_SECONDS:
        raise CallerError(
            f"{name}: expected seconds, 0 to {_MOST_SECONDS:,}, found {_shown(value)}"
        )


def _shown(value: Any) -> str:
    """A wrong value, or its type, for a message: short, and on one line."""
    short = value is None or isinstance(value, float)
    short |= isinstance(value, int) and value.bit_length() <= 64
    return repr(value) if short else type(value).__name__
