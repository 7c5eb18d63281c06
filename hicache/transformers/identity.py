"""Which computation a page belongs to: the models and torch, looked at before each call.

Two calls have the same name if everything that decides their rows is the same: all weights and
buffers, the modules with their attributes and the code of their passes, the configuration, the
adapters, the implementation of attention, the settings of torch and the types of autocast. The name
is the namespace of all pages of a call, on every tier. Weights are read once, at the speed of
memory, and again when torch has counted up a version, a tensor lies elsewhere, or one of 16 numbers
of each differs. What cannot be known, such as a hook, is refused.
"""

import hashlib
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from itertools import chain
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
import transformers
import xxhash
from torch.multiprocessing.reductions import StorageWeakRef

from hicache.storage.identity import code_of_modules

from . import UnsupportedModelError

# Attributes that say where a model came from, how it generates or is trained, or that are looked at
# on their own: they change no row.
_SKIPPED = frozenset(
    (
        *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version"),
        *("architectures", "use_cache", "generation_config", "warnings_issued", "model_tags"),
        *("_is_hf_initialized", "_output_capturing_hooks_installed", "hf_device_map"),
        *("_compiled_call", "_last_compile_config", "_is_quantized_training_enabled"),
        *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"),
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        *("_is_full_backward_hook", "_state_dict_hooks", "_state_dict_pre_hooks"),
        *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
        *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
        "_forward_pre_hooks_with_kwargs",
    )
)
# What a pass of a rotary embedding changes itself, with the length of a text; see `setups.longest`.
_TURNED = ("inv_freq", "max_seq_len_cached", "attention_scaling")
_LIBRARIES = ("torch", "transformers", "builtins", "math", "_operator")
_SIDE = "transformers.utils.output_capturing"  # hooks that only copy what the library returns
_PLAIN = (bool, int, float, complex, str, bytes, Enum, torch.dtype, torch.device)
_BACKENDS: Any = torch.backends
# Where torch keeps in which precision it multiplies fp32; its older settings show here, too.
_PRODUCTS: tuple[Any, ...] = (
    *(_BACKENDS.cuda.matmul, _BACKENDS.cudnn.conv, _BACKENDS.cudnn.rnn),
    *(_BACKENDS.mkldnn.matmul, _BACKENDS.mkldnn.conv, _BACKENDS.mkldnn.rnn),
)
_PART_BYTES = 1 << 24
_THREADS = 8
_SAMPLES = 16  # numbers of a tensor
_UNCOUNTED = -1
Version = tuple[Any, ...]


class Computation(NamedTuple):
    """setup: everything but the elements of tensors. weights: those. versions: of the tensors, as
    torch counts them, and samples."""

    setup: bytes
    weights: bytes
    versions: tuple[Any, ...]

    @property
    def name(self) -> str:
        return hashlib.sha256(self.setup + self.weights).hexdigest()[:32]


class Identity:
    """The model of one cache, as it is now. read_bytes: of weights, so far."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.read_bytes = 0
        self._digests: dict[Version, tuple[bytes, StorageWeakRef]] = {}
        self._samples = b""
        self._code: dict[frozenset[type], list[str]] = {}

    def now(self) -> Computation:
        """The computation of a call that begins now. Raises UnsupportedModelError for what cannot
        be known."""
        setup, tensors, versions = self._look()
        if versions[-1] != self._samples:
            self._digests.clear()
        known = {
            key: self._digests[key]
            for key in versions[:-1]
            if key in self._digests and key[-1] != _UNCOUNTED
        }
        new = {
            key: tensor for key, tensor in zip(versions, tensors, strict=False) if key not in known
        }
        for (key, item), digest in zip(new.items(), _digests(list(new.values())), strict=True):
            storage = StorageWeakRef(item.untyped_storage())  # type: ignore[no-untyped-call]
            known[key] = (digest, storage)
            self.read_bytes += item.numel() * item.element_size()
        self._digests, self._samples = known, versions[-1]
        data = b"".join(known[key][0] for key in versions[:-1])
        return Computation(setup, hashlib.sha256(data).digest()[:16], versions)

    def is_still(self, before: Computation) -> bool:
        """Whether the computation is that of before, as far as is seen without reading weights."""
        try:
            setup, _, versions = self._look()
        except UnsupportedModelError:
            return False
        return setup == before.setup and versions == before.versions

    def _look(self) -> tuple[bytes, list[torch.Tensor], tuple[Any, ...]]:
        model, tensors = self._model, dict[str, torch.Tensor]()
        modules = list(model.named_modules(remove_duplicate=False))
        fingerprints = [
            _module(module, model.config, f"model.{name}".rstrip("."), tensors)
            for name, module in modules
        ]
        kinds = frozenset(type(item) for _, item in modules)
        if kinds not in self._code:
            self._code[kinds] = code_of_modules([model], "transformers")
        passes = sorted(_function(kind.forward) for kind in kinds)
        attention = model.config._attn_implementation
        used = _function(transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.get(attention))
        config = _value(model.config, "config", tensors)
        setup = (_of_torch(), fingerprints, config, attention, used, passes, self._code[kinds])
        versions = [_version(name, tensor) for name, tensor in tensors.items()]
        digest = xxhash.xxh3_128_digest(repr(setup).encode())
        return digest, list(tensors.values()), (*versions, _sampled(tensors.values()))


def _module(module: Any, config: Any, where: str, tensors: dict[str, torch.Tensor]) -> Any:
    """A module's class, attributes and tensors, which are added by name. config: looked at once."""
    own = vars(module)
    for hooks in (own["_forward_hooks"], own["_forward_pre_hooks"]):
        if any(getattr(item, "__module__", "") != _SIDE for item in hooks.values()):
            raise _unknown(where, "a hook")
    turns = any(text in str(own.get("rope_type", "")) for text in ("dynamic", "longrope"))
    kept = {**own, **own["_parameters"], **own["_buffers"]}
    attributes = [
        (name, _value(item, f"{where}.{name}", tensors))
        for name, item in kept.items()
        if name not in _SKIPPED
        and item is not None
        and item is not config
        and not (turns and name.endswith(_TURNED) and "original" not in name)
    ]
    return type(module).__module__, type(module).__qualname__, attributes


def _value(value: Any, where: str, tensors: dict[str, torch.Tensor]) -> Any:
    """An attribute as plain values."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_meta:
            raise _unknown(where, f"a {type(value).__name__} without plain elements in memory")
        tensors[where] = value
        return str(value.dtype), tuple(value.shape)
    if isinstance(value, Mapping):
        items = value.items()
        return [(str(key), _value(item, f"{where}.{key}", tensors)) for key, item in items]
    if isinstance(value, list | tuple):
        return [_value(item, where, tensors) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(_value(item, where, tensors)) for item in value)
    if hasattr(value, "to_dict") and not isinstance(value, type):  # a configuration
        kept = {name: item for name, item in value.to_dict().items() if name not in _SKIPPED}
        return _value(kept, where, tensors)
    if isinstance(value, partial):
        return [_value(item, where, tensors) for item in (value.func, value.args, value.keywords)]
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        owner = getattr(value, "__self__", None)
        library = str(value.__module__).partition(".")[0] in _LIBRARIES
        if library and (owner is None or isinstance(owner, ModuleType | type)):
            return _function(value)
    raise _unknown(where, f"a {type(value).__name__}")


def _function(value: Any) -> tuple[str, ...]:
    """Its name, and what it does as far as its own code shows."""
    result = inspect.unwrap(value) if callable(value) else value
    code = getattr(result, "__code__", None)
    does = "" if code is None else f"{code.co_code.hex()} {code.co_names}"
    return (f"{getattr(result, '__module__', '')}.{getattr(result, '__qualname__', '')}", does)


def _unknown(where: str, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{where}: expected what can be compared with another model, found {what}; remove it, or "
        "call model.generate"
    )


def _of_torch() -> tuple[Any, ...]:
    """The settings of torch that change rows by more than rounding, or that a user may choose."""
    everywhere = torch.nn.modules.module
    if everywhere._global_forward_pre_hooks or everywhere._global_forward_hooks:
        raise _unknown("torch", "a hook of all modules")
    autocast = [
        (place, str(torch.get_autocast_dtype(place)))
        for place in ("cpu", "cuda")
        if torch.is_autocast_enabled(place)
    ]
    return (
        *(str(torch.__version__), transformers.__version__, autocast),
        str(torch.get_default_dtype()),
        *(product.fp32_precision.replace("none", "ieee") for product in _PRODUCTS),
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.are_deterministic_algorithms_enabled(),
    )


# -- tensors


def _version(name: str, tensor: torch.Tensor) -> Version:
    """Equal for tensors that are the same memory at the same version. A storage is named by its
    record, which stays as long as somebody refers to it weakly."""
    try:
        storage = tensor.untyped_storage()
        place = (storage._cdata, storage.data_ptr(), tensor.storage_offset(), tensor.stride())
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        raise _unknown(name, f"a tensor of layout {tensor.layout}") from error
    version = _UNCOUNTED if tensor.is_inference() else tensor._version
    return (*place, tuple(tensor.shape), tensor.dtype, version)


def _sampled(tensors: Any) -> bytes:
    """A few numbers of each tensor: somebody may have written it in a way that torch does not
    count, such as a fused optimizer."""
    groups: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)
        taken = flat[:: flat.numel() // _SAMPLES + 1].contiguous()
        groups.setdefault(tensor.device, []).append(taken.view(torch.uint8))
    return b"".join(torch.cat(group).cpu().numpy().tobytes() for group in groups.values())


def _digests(tensors: Sequence[torch.Tensor]) -> list[bytes]:
    """The digest of each tensor's elements. Large ones are read in parts, on several threads."""
    if not tensors:
        return []
    parts = [_parts(tensor) for tensor in tensors]
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        values: Iterator[bytes] = pool.map(_digest, chain.from_iterable(parts))
        return [xxhash.xxh3_128_digest(b"".join(next(values) for _ in part)) for part in parts]


def _parts(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """The elements in order, in parts of at most _PART_BYTES. One part if there are none."""
    flat = tensor.detach().contiguous().reshape(-1)
    return torch.split(flat, max(1, _PART_BYTES // flat.element_size()))


def _digest(part: torch.Tensor) -> bytes:
    return xxhash.xxh3_128_digest(part.cpu().view(torch.uint8).numpy().data)
