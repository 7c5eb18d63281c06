"""Stubs for what an engine imports and a CPU lacks: kernels, servers, other libraries.

A target's file names two kinds of modules:

    STUBS    replaced, with everything below them, by modules that have any name one asks for
    BARE     packages whose own __init__ is not run: their modules are real, and any other name that
             is asked of the package itself is a stub

Everything else is imported as it is, so what is missing fails. A stub serves as what an import may
make of it: a base class, a decorator, an annotation, a default. What its call returns is empty. A
class that an engine derives from a stub has the names that it defines.
"""

import sys
from abc import ABCMeta
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class Stubs(MetaPathFinder, Loader):
    """The import hook. version: what a bare package says is its version."""

    def __init__(self, stubs: Sequence[str], bare: Sequence[str] = (), version: str = "") -> None:
        self._stubs, self._bare, self._version = tuple(stubs), frozenset(bare), version

    def install(self) -> None:
        """From now on, imports in this process go through the stubs first."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if any(name == stub or name.startswith(f"{stub}.") for stub in self._stubs):
            return ModuleSpec(name, self, is_package=True)
        real = PathFinder.find_spec(name, path) if name in self._bare else None
        if real is None or real.submodule_search_locations is None:
            return None
        spec = ModuleSpec(name, self, origin=real.origin, is_package=True)
        spec.submodule_search_locations = list(real.submodule_search_locations)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        bare = self._version and module.__name__ in self._bare
        module.__version__ = self._version if bare else "0.0.0"  # type: ignore[attr-defined]


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if not _is_special(name) and self.__path__ and find_spec(full) is not None:  # it is bare
            return import_module(full)
        setattr(self, name, kind := _stub(full))
        return kind


def _stub(name: str) -> type:
    """A new stub. name: the dotted name by which it was asked for."""
    module, _, last = name.rpartition(".")
    if _is_special(last):
        raise AttributeError(last)
    return _StubClass(last, (_Stub,), {"_name": name, "__module__": module})


class _StubClass(ABCMeta):
    """The class of stubs. Of its classes, those with an own `_name` are stubs, and the others are
    classes that an engine derived from one."""

    def __getattr__(cls, name: str) -> Any:
        if "_name" not in vars(cls):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        setattr(cls, name, kind := _stub(f"{cls._name}.{name}"))
        return kind

    def __call__(cls, *items: Any, **named: Any) -> Any:
        if "_name" in vars(cls) and _decorates(items, named):
            return items[0]
        return super().__call__(*items, **named)

    def _same(cls, other: Any) -> Any:
        return cls

    __getitem__ = __or__ = __ror__ = _same


class _Stub(metaclass=_StubClass):
    """The base of stubs. An instance is what a call of a stub returns."""

    def __init__(self, *value: Any, **named: Any) -> None:
        pass

    def __init_subclass__(cls, **named: Any) -> None:
        pass

    def __call__(self, *items: Any, **named: Any) -> Any:
        return items[0] if _decorates(items, named) else self

    def __len__(self) -> int:
        return 0


def _decorates(items: Sequence[Any], named: Any) -> bool:
    """Whether a call may be that of a decorator: it then leaves what it decorates as it is."""
    return len(items) == 1 and not named and callable(items[0])


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
