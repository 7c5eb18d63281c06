"""Which computation a page belongs to: what is asked of the models and of torch before each call.

Two calls have the same name if everything that decides their rows is the same: every byte of every
weight, the modules with their attributes, hooks and code, the configuration, the settings of torch,
and the types of autocast. The name is the namespace of all pages of a call, on every tier, so a
page is found by the computation that made it and by no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .contents import Contents, Version, version_of
from .pictures import Painter, digest_of

# Attributes that say where a model came from, or how it generates, and change no row.
_SKIPPED = frozenset(
    (
        *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version"),
        *("architectures", "use_cache", "generation_config", "warnings_issued", "model_tags"),
        *("_is_hf_initialized", "_output_capturing_hooks_installed", "hf_device_map"),
        *("_compiled_call", "_last_compile_config", "_is_quantized_training_enabled"),
        # of every module of torch: told by `Painter.module`, or about training and files
        *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"),
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        *("_is_full_backward_hook", "_state_dict_hooks", "_state_dict_pre_hooks"),
        *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
        *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
        "_forward_pre_hooks_with_kwargs",
        # of parameters
        *("grad", "_post_accumulate_grad_hooks"),
    )
)
_PLACES = ("cpu", "cuda")
# Where torch keeps in which precision it multiplies fp32. Its older settings show here, too, but
# cannot be read once somebody has used the newer ones.
_BACKENDS: Any = torch.backends
_PRODUCTS: tuple[Any, ...] = (
    *(_BACKENDS.cuda.matmul, _BACKENDS.cudnn.conv, _BACKENDS.cudnn.rnn),
    *(_BACKENDS.mkldnn.matmul, _BACKENDS.mkldnn.conv, _BACKENDS.mkldnn.rnn),
)


class Computation(NamedTuple):
    """setup: everything but the elements of tensors. weights: those. versions: of the tensors, as
    torch counts them."""

    setup: bytes
    weights: bytes
    versions: tuple[Version, ...]

    @property
    def name(self) -> str:
        return hashlib.sha256(self.setup + self.weights).hexdigest()[:32]


class Identity:
    """The models of one cache, as they are now."""

    def __init__(self, models: Sequence[Any], every_call: bool) -> None:
        """every_call: read all weights for every call, also those whose version is known."""
        self._models, self._every_call = models, every_call
        self.contents = Contents()
        self._codes: dict[Any, Any] = {}

    def now(self) -> Computation:
        """The computation of a call that begins now."""
        setup, painter = self._setup()
        named = (*painter.tensors, *painter.passing)
        versions = tuple(starmap(version_of, named))
        tensors = [tensor for _, tensor in named]
        found = self.contents.digests(tensors, versions, self._every_call)
        weights = hashlib.sha256(b"".join(found)).digest()[:16]
        return Computation(setup, weights, versions[: len(painter.tensors)])

    def is_still(self, before: Computation) -> bool:
        """Whether the computation is that of before, as far as is seen without reading weights."""
        setup, painter = self._setup()
        return setup == before.setup and before.versions == tuple(
            starmap(version_of, painter.tensors)
        )

    def _setup(self) -> tuple[bytes, Painter]:
        painter = Painter(_SKIPPED, self._codes)
        pictures = []
        for number, model in enumerate(self._models):
            picture = painter.of(model, "draft" if number else "model")
            attention = ALL_ATTENTION_FUNCTIONS.get(model.config._attn_implementation)
            pictures.append((picture, painter.of(attention, "attention")))
        return digest_of((tuple(pictures), _of_torch(painter))), painter


def _of_torch(painter: Painter) -> tuple[Any, ...]:
    """The settings of torch that change rows by more than rounding, or that a user may choose."""
    autocast = [
        (place, str(torch.get_autocast_dtype(place)))
        for place in _PLACES
        if torch.is_autocast_enabled(place)
    ]
    everywhere = torch.nn.modules.module
    hooks = (everywhere._global_forward_pre_hooks, everywhere._global_forward_hooks)
    return (
        *(str(torch.__version__), transformers.__version__, tuple(autocast)),
        str(torch.get_default_dtype()),
        *(one.fp32_precision.replace("none", "ieee") for one in _PRODUCTS),
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.are_deterministic_algorithms_enabled(),
        *(painter.of(tuple(one.values()), "hooks of all modules") for one in hooks if one),
    )
