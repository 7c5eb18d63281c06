"""Any value of a model as plain tuples, so that two of them can be compared by their bytes.

Numbers, texts and containers stand for themselves, an object for its class and its attributes, a
function for its code and for what it was given. Tensors are listed on the side; see `contents`.
"""

from __future__ import annotations

import functools
import marshal
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from enum import Enum
from threading import local
from typing import Any

import numpy as np
import torch
import xxhash

from ..errors import UnsupportedModelError

_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset, OrderedDict))
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_BARE = (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, local)
# They hold no numbers, and nothing could be compared.
_EMPTY = frozenset(("lock", "RLock", "_RLock", "ContextVar", "Logger", "Stream", "Event"))
_SIDE = "transformers.utils.output_capturing"  # hooks that only copy what the library returns
_VERSION = 2  # of marshal: without references, so equal values have equal bytes


def passing_of(module: Any) -> dict[str, torch.Tensor | None]:
    """What a pass of a rotary embedding changes itself: by name, what it will compute a prompt of
    at most `setups.longest_prompt` tokens with, or None if that follows from the rest."""
    kinds = vars(module).get("rope_type")
    if not isinstance(kinds, str | Mapping) or not hasattr(module, "original_max_seq_len"):
        return {}
    found: dict[str, torch.Tensor | None] = {}
    for layers, kind in {"": kinds}.items() if isinstance(kinds, str) else kinds.items():
        prefix = f"{layers}_" if layers else ""
        own = getattr(module, f"{prefix}inv_freq", None)
        original = getattr(module, f"{prefix}original_inv_freq", None)
        if kind == "longrope":
            found |= {f"{prefix}inv_freq": original, f"{prefix}long_inv_freq": None}
        elif "dynamic" in str(kind):
            longest = f"{prefix}max_seq_len_cached"
            known = getattr(module, longest, module.max_seq_len_cached)
            scaled = bool(known > module.original_max_seq_len)  # until the next shorter prompt
            found |= {f"{prefix}inv_freq": original if scaled else own, longest: None}
            found |= {"max_seq_len_cached": None}
            if prefix and getattr(module, "attention_scaling", 1.0) == 1.0:  # nobody reads it
                found |= {"attention_scaling": None}
    return found


def digest_of(picture: Any) -> bytes:
    """16 bytes that are the same for equal pictures alone."""
    return xxhash.xxh3_128_digest(marshal.dumps(picture, _VERSION))


class Painter:
    """Makes the pictures of one moment. tensors: those met, in order, each with where it was.
    passing: those that a pass may change itself.

    skipped: names of attributes that change no row. codes: digests of code, kept between moments.
    """

    def __init__(self, skipped: frozenset[str], codes: dict[Any, Any]) -> None:
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self.passing: list[tuple[str, torch.Tensor]] = []
        self._skipped, self._codes = skipped, codes
        self._under_way: dict[int, int] = {}
        self._done: dict[int, tuple[Any, Any]] = {}  # with the value, so that no id is used twice

    def of(self, value: Any, where: str) -> Any:
        """The picture of a value. where: its name, for an error."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value, where)
        if type(value) in _CONTAINERS and not value:
            return (type(value).__name__,)
        return self._once(value, where)

    def _once(self, value: Any, where: str) -> Any:
        """Of what may hold itself, or be met again."""
        known = self._done.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        if id(value) in self._under_way:
            return ("again", self._under_way[id(value)])
        self._under_way[id(value)] = len(self._under_way)
        before = len(self.tensors)
        try:
            made = self._made(value, where)
        finally:
            del self._under_way[id(value)]
        if len(self.tensors) == before:
            self._done[id(value)] = (value, digest_of(made))
            return self._done[id(value)][1]
        return made

    def _made(self, value: Any, where: str) -> Any:
        kind = type(value)
        if isinstance(value, torch.nn.Module):
            return self.module(value, where)
        if isinstance(value, list | tuple):
            return (kind.__name__, *(self.of(one, where) for one in value))
        if isinstance(value, Mapping):
            return (kind.__name__, *self._items(value, where))
        if isinstance(value, set | frozenset):
            parts = [self.of(one, where) for one in value]
            return (kind.__name__, *sorted(digest_of(one) for one in parts))
        if isinstance(value, Enum):
            return (_name(kind), value.name)
        if isinstance(value, str | bytes | int | float | complex):
            plain = next(one for one in kind.__mro__ if one in _PLAIN)
            return (_name(kind), plain(value))
        if isinstance(value, _NAMED):
            return (kind.__name__, str(value))
        if isinstance(value, type):
            return ("class", _name(value))
        if isinstance(value, types.ModuleType):
            return ("module", value.__name__)
        return self._called(value, where) or self._object(value, where)

    def _items(self, value: Mapping[Any, Any], where: str) -> Iterable[tuple[Any, Any]]:
        for key, one in value.items():
            known = key if type(key) in _PLAIN else self.of(key, where)
            yield known, one if type(one) in _PLAIN else self.of(one, f"{where}.{key}")

    # -- modules

    def module(self, value: torch.nn.Module, where: str) -> Any:
        """A module: its class, attributes, hooks, tensors and children."""
        held, passing = vars(value), passing_of(value)
        attributes = [
            (name, one if type(one) in _PLAIN else self.of(one, f"{where}.{name}"))
            for name, one in held.items()
            if name not in self._skipped and name not in passing and one is not None
        ]
        hooks = [
            (name, *(self.of(hook, f"{where}.{name}") for hook in held[name].values()))
            for name in _HOOKS
            if held.get(name)
            and any(getattr(one, "__module__", "") != _SIDE for one in held[name].values())
        ]
        tensors = [
            (name, self._tensor(one, f"{where}.{name}"))
            for part in ("_parameters", "_buffers")
            for name, one in held[part].items()
            if one is not None and name not in passing
        ]
        for one in passing.values():
            if one is not None:
                self.passing.append((f"{where}.inv_freq", one))
        children = [
            (name, self.of(one, f"{where}.{name}"))
            for name, one in held["_modules"].items()
            if one is not None
        ]
        code = self.class_code(type(value))
        return (code, tuple(attributes), tuple(hooks), tuple(tensors), tuple(children))

    def class_code(self, kind: type) -> Any:
        """The code of a module's class and of what it derives from."""
        known = self._done.get(id(kind))
        if known is None:
            parts = []
            for one in kind.__mro__:
                if one is torch.nn.Module:
                    break
                if one.__module__ not in _LIBRARY_BASES:
                    parts.append((_name(one), self._kept(one, _own(one))))
            known = self._done[id(kind)] = (kind, digest_of((_name(kind), tuple(parts))))
        return known[1]

    def _kept(self, kind: type, own: Mapping[str, Any]) -> bytes:
        """The digest of what a class has of its own, and of the functions that its methods call.
        It is made again when one of them was replaced."""
        known = self._codes.get(kind)
        if known is not None:
            slots, functions, values, digest = known
            now = (*own.values(), *_now(slots, functions))
            if len(values) == len(now) and all(map(_is, values, now)):
                return bytes(digest)
        slots = []
        reached: dict[int, types.FunctionType] = {}
        plain = [(name, _brief(one)) for name, one in own.items()]
        waiting = [one for one in map(_plain_function, own.values()) if one is not None]
        while waiting:
            one = waiting.pop()
            if id(one) in reached:
                continue
            reached[id(one)] = one
            waiting += [cell for cell in _cells(one) if isinstance(cell, types.FunctionType)]
            found = _found_by(one)
            slots += found
            values = [space[name] for space, name in found]
            waiting += [
                value
                for value in values
                if isinstance(value, types.FunctionType) and _is_near(value)
            ]
        codes = sorted((_name(one), _code(one.__code__), _given(one)) for one in reached.values())
        plain += [(name, _brief(space[name])) for space, name in slots]
        digest = digest_of((tuple(codes), tuple(sorted(set(plain)))))
        functions = tuple(reached.values())
        now = (*own.values(), *_now(slots, functions))
        self._codes[kind] = (slots, functions, now, digest)
        return digest

    # -- functions and objects

    def _called(self, value: Any, where: str) -> Any:
        if isinstance(value, types.FunctionType):
            return self._function(value, where)
        if isinstance(value, types.MethodType):
            return ("method", self.of(value.__func__, where), self.of(value.__self__, where))
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return ("partial", *(self.of(one, where) for one in parts))
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            owner = getattr(value, "__self__", None)
            own = None if isinstance(owner, types.ModuleType) else self.of(owner, where)
            return ("builtin", getattr(value, "__module__", None), value.__qualname__, own)
        return None

    def _function(self, value: types.FunctionType, where: str) -> Any:
        """Its code, and the values that it was given or finds in its own module. Of what a
        library's function finds, only the code and the plain values count."""
        given = (value.__defaults__, value.__kwdefaults__, tuple(_cells(value)))
        pictures = [self.of(one, where) for one in given]
        if not _is_library(value):
            space = value.__globals__
            named = ((name, space[name]) for name in _names(value.__code__) if name in space)
            pictures += [(name, self.of(one, f"{where}.{name}")) for name, one in named]
        else:
            pictures += [(name, _brief(space[name])) for space, name in _found_by(value)]
        return ("function", _name(value), _code(value.__code__), *pictures)

    def _object(self, value: Any, where: str) -> Any:
        kind = type(value)
        if isinstance(value, np.ndarray | np.generic):
            held = value.tolist() if value.dtype.hasobject else value.tobytes()
            return (_name(kind), str(value.dtype), value.shape, self.of(held, where))
        if isinstance(value, weakref.ref):
            return ("weak", self.of(value(), where))
        if isinstance(value, _BARE) or kind.__name__ in _EMPTY:
            return ("bare", _name(kind))
        slots = [name for one in kind.__mro__ for name in getattr(one, "__slots__", ())]
        if hasattr(value, "__dict__") or slots:
            held = dict(getattr(value, "__dict__", {}))
            held |= {name: getattr(value, name) for name in slots if hasattr(value, name)}
            held = {name: one for name, one in held.items() if name not in self._skipped}
            return (_name(kind), *self._items(held, where))
        try:
            parts = value.__reduce_ex__(2)
        except Exception as error:  # whatever a class of somebody else says
            raise UnsupportedModelError(
                f"{where}: expected a value that can be compared, found {_name(kind)}, of which "
                "nobody can say whether it changes what is computed; remove it from the model"
            ) from error
        if isinstance(parts, str):
            return (_name(kind), parts)
        rest = (list(one) if hasattr(one, "__next__") else one for one in parts[1:])
        return (_name(kind), *(self.of(one, where) for one in rest))

    # -- tensors

    def _tensor(self, value: torch.Tensor, where: str) -> Any:
        """Its shape and type. The elements, and what a class of tensors adds, come on the side."""
        if value.device.type == "meta":
            raise UnsupportedModelError(
                f"weight {where}: expected its bytes in memory, found a tensor without any, as of "
                "a model that is offloaded or was never loaded; load the whole model to one device"
            )
        kind = type(value)
        picture: tuple[Any, ...] = (str(value.dtype), tuple(value.shape))
        if kind in (torch.Tensor, torch.nn.Parameter):
            self.tensors.append((where, value))
            return picture
        inner = getattr(value, "__tensor_flatten__", None)
        if inner is not None:
            names, about = inner()
            parts = [(name, self.of(getattr(value, name), f"{where}.{name}")) for name in names]
            return (_name(kind), *picture, tuple(parts), self.of(about, where))
        self.tensors.append((where, value))
        held = {name: one for name, one in vars(value).items() if name not in self._skipped}
        return (_name(kind), *picture, *self._items(held, where))


_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_LIBRARIES = ("torch", "transformers", "peft", "accelerate")
_LIBRARY_BASES = ("transformers.modeling_utils", "transformers.generation.utils")


def _is(one: Any, other: Any) -> bool:
    return one is other


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_library(value: types.FunctionType | type) -> bool:
    return str(value.__module__).partition(".")[0] in _LIBRARIES


def _is_near(value: types.FunctionType) -> bool:
    """Whether what a class calls may compute rows."""
    return not str(value.__module__).startswith(("torch.", "transformers.utils", "typing"))


def _own(kind: type) -> dict[str, Any]:
    """What a class has of its own: methods, properties and values, without its texts. The library
    keeps notes of its own in the values of its classes; these do not count."""
    values = not _is_library(kind)
    return {
        name: one
        for name, one in vars(kind).items()
        if _plain_function(one) is not None
        or callable(one)
        or (values and not (name.startswith("__") and name.endswith("__")))
    }


def _found_by(function: types.FunctionType) -> list[tuple[dict[str, Any], str]]:
    """Where a function finds what it names: in its own module, and in others that it names."""
    found = []
    spaces = [function.__globals__]
    for space in spaces:
        for name in _names(function.__code__):
            value = space.get(name)
            if type(value) is not types.ModuleType:
                found += [(space, name)] if name in space else []
            elif value.__name__.partition(".")[0] not in sys.stdlib_module_names and not any(
                vars(value) is one for one in spaces
            ):
                spaces.append(vars(value))
    return found


def _now(
    slots: Iterable[tuple[dict[str, Any], str]], functions: Iterable[types.FunctionType]
) -> list[Any]:
    """What functions do and find now."""
    found = [space.get(name) for space, name in slots]
    for one in functions:
        named = one.__kwdefaults__ or {}
        found += (one.__code__, one.__defaults__, *named, *named.values(), *_cells(one))
    return found


def _given(function: types.FunctionType) -> tuple[Any, ...]:
    """The defaults of a function's arguments, and what it has from around it."""
    named = sorted((function.__kwdefaults__ or {}).items())
    return (
        tuple(map(_brief, function.__defaults__ or ())),
        tuple((name, _brief(one)) for name, one in named),
        tuple(map(_brief, _cells(function))),
    )


def _plain_function(value: Any) -> types.FunctionType | None:
    """The function of a method of any kind, or of a property."""
    for name in ("fget", "func", "__func__"):
        value = getattr(value, name, value)
    return value if isinstance(value, types.FunctionType) else None


def _cells(value: types.FunctionType) -> list[Any]:
    """What a function has from around it."""
    found = []
    for cell in value.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            found.append(None)
    return found


@functools.lru_cache(4096)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function looks up, with those of the functions in it."""
    inner = [
        name for one in code.co_consts if isinstance(one, types.CodeType) for name in _names(one)
    ]
    return tuple(dict.fromkeys((*code.co_names, *inner)))


@functools.lru_cache(4096)
def _code(code: types.CodeType) -> bytes:
    """A digest of what a function does, without where it stands."""
    constants = tuple(
        _code(one) if isinstance(one, types.CodeType) else _constant(one) for one in code.co_consts
    )
    return digest_of((code.co_code, code.co_names, code.co_varnames, constants))


def _constant(value: Any) -> Any:
    if isinstance(value, frozenset):
        return ("set", *sorted(repr(one) for one in value))
    if isinstance(value, tuple):
        return tuple(_constant(one) for one in value)
    return value if type(value) in _PLAIN else repr(value)


def _brief(value: Any) -> str:
    """What a name of a module stands for, as far as the code that uses it can show."""
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, types.FunctionType):
        return f"{_name(value)} {_code(value.__code__).hex()}"
    if isinstance(value, types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return _name(value) if isinstance(value, type) else _name(type(value))
