"""Plugins by name: those of a module that lists `PLUGINS`, as the core's components and policies
do, or the files of a folder, which are imported only when they are asked for.

Components have settings, whose base stands here: this file is not compiled, and an interpreted
class cannot inherit from a compiled one. Users may add plugins of their own for the life of the
process. What a plugin must be, the code that uses it knows.
"""

import importlib
import pkgutil
import re
from typing import Any, ClassVar, NamedTuple, Self

from .errors import CallerError, unknown

COMPONENTS = "hicache.core.components"
EVICTION_POLICIES = "hicache.core.eviction_policies"
WRITE_POLICIES = "hicache.core.write_policies"
PREFETCH_POLICIES = "hicache.core.prefetch_policies"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_added: dict[str, dict[str, Any]] = {}  # [package][name]


class Shape(NamedTuple):
    """Settings that a model or a user gives for all components. Each component uses those that it
    needs. 0: not given."""

    window_tokens: int = 0
    interval_tokens: int = 0
    states_per_path: int = 0


class ComponentSettings:
    """The settings of one component. A component with settings defines a frozen dataclass
    `Settings` of integers, derived from this. The name of a field that counts tokens ends in
    _tokens.
    """

    __slots__ = ()
    component: ClassVar[str]

    @classmethod
    def of(cls, shape: Shape) -> Self:
        """The settings of this component, taken from a shape."""
        raise NotImplementedError


def names(package: str) -> list[str]:
    """The names of a package's plugins, sorted: its modules, except `base` and those that begin
    with an underscore, or its table `PLUGINS`; and the plugins that were added."""
    package_module = importlib.import_module(package)
    items = list(getattr(package_module, "PLUGINS", ()))
    items += [item.name for item in pkgutil.iter_modules(getattr(package_module, "__path__", ()))]
    own = [name for name in items if name != "base" and not name.startswith("_")]
    return sorted(_spelled(name) for name in (*own, *_added.get(package, ())))


def stems(package: str) -> list[str]:
    """The names as Python spells them, with underscores."""
    return sorted(name.replace("-", "_") for name in names(package))


def spellings(package: str) -> list[str]:
    """The names as users spell them: policies with underscores, all others with hyphens."""
    own = package in (EVICTION_POLICIES, WRITE_POLICIES, PREFETCH_POLICIES)
    return stems(package) if own else names(package)


def has(package: str, name: str) -> bool:
    """Whether the package has a plugin of this name."""
    return _NAME.fullmatch(name) is not None and _spelled(name) in names(package)


def load(package: str, name: str) -> Any:
    """The plugin that is listed or was added under this name, or the module of that name. Raises
    CallerError for an unknown name."""
    stem = name.replace("-", "_")
    added = _added.get(package, {}).get(stem)
    if added is not None:
        return added
    if not has(package, name):
        raise unknown(kind(package), name, spellings(package))
    table = getattr(importlib.import_module(package), "PLUGINS", {})
    return table[stem] if stem in table else importlib.import_module(f"{package}.{stem}")


def add(package: str, name: str, plugin: Any) -> None:
    """Add a plugin of the user for the life of this process: a class like those that the package
    lists, or an object with the attributes of its modules. Raises CallerError if the name is not
    legal or taken."""
    added, stem = _added.setdefault(package, {}), name.replace("-", "_")
    if not _NAME.fullmatch(name) or (stem not in added and stem in stems(package)):
        taken = ", ".join(spellings(package))
        raise CallerError(
            f"{kind(package)}: expected a name in lower case that none of {taken} has, found "
            f"{name!r}; rename it"
        )
    added[stem] = plugin


def remove(package: str, name: str) -> None:
    """Remove a plugin that was added. Does nothing if there is none."""
    _added.get(package, {}).pop(name.replace("-", "_"), None)


def kind(package: str) -> str:
    return package.rpartition(".")[2].replace("_", " ")


def _spelled(name: str) -> str:
    return name.replace("_", "-")
