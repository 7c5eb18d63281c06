"""The interface of a component. A component answers one question:

    If a request's prefix ends at this node, which nodes on the path must have this component?

`required` is the definition. The core itself uses `window_pages`; the contract suite of components
compares matching with the definition on random paths. No code depends on a component's name. A
component does not use pools, transfers or other components.

    a node is required by a boundary b on or below it iff b.end_page - node.end_page < window_pages
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, get_args

from .. import entries
from ..errors import CallerError
from ..types import Pages

UNBOUNDED = 1 << 40
# What a prefix requires of its path: the whole path, a window at its end, or one state.
Residency = Literal["path", "window", "state"]


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


class Component(Protocol):
    """One kind of attention: what a prefix requires of the nodes on its path.

    positional   whether a node has one page of it per page of its run. Otherwise a node has one
                 state, at its end, and a request copies the state before it changes it (copy on
                 use).
    window_tokens tokens that a token reads, including itself (UNBOUNDED: all; 0 for a state).
    window_pages pages right above a boundary that the boundary requires (UNBOUNDED: all of them; 1:
                 the node that ends there).
    slots        pages of an admitted request that are not by position: a working slot and two
                 checkpoint slots; 0 for a positional component.
    least_slots  the slots without which a request cannot run. With fewer than `slots`, it may have
                 no slot for a checkpoint.
    least_pages  the smallest device pool in which a request can run.
    interval     tokens between depths at which a boundary can be made.
    per_path     the largest number of states kept on one path; 0 means no limit.
    """

    @property
    def name(self) -> str: ...

    @property
    def positional(self) -> bool: ...

    @property
    def window_tokens(self) -> int: ...

    @property
    def window_pages(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def least_slots(self) -> int: ...

    @property
    def least_pages(self) -> int: ...

    @property
    def interval(self) -> int: ...

    @property
    def per_path(self) -> int: ...

    def required(self, lengths: Sequence[int]) -> range:
        """The indices of the path's nodes that must have the component. lengths: pages per node."""

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        """The pages of the upper and of the lower half when a node is split `at` pages from its
        start. None: the half does not have the component."""


def residency(name: str) -> Residency:
    """The RESIDENCY that the component's file declares. Raises CallerError for an unknown name and
    for a file that declares none."""
    said: Any = getattr(_module(name), "RESIDENCY", None)
    if said not in get_args(Residency):
        kinds = ", ".join(get_args(Residency))
        raise CallerError(
            f"hicache/core/components/{name}.py: expected RESIDENCY, one of {kinds}, found {said!r}"
        )
    declared: Residency = said
    return declared


def known() -> tuple[str, ...]:
    """The names of all components, in the order in which a configuration lists them."""
    kinds = get_args(Residency)
    return tuple(
        sorted(
            entries.stems(entries.COMPONENTS), key=lambda one: (kinds.index(residency(one)), one)
        )
    )


def settings_for(names: Iterable[str], shape: Shape) -> tuple[ComponentSettings, ...]:
    """The settings of those components that have settings."""
    found = [getattr(_module(name), "Settings", None) for name in names]
    return tuple(settings.of(shape) for settings in found if settings is not None)


def _module(name: str) -> Any:
    """The component's file. Raises CallerError, with its name, if it cannot be imported."""
    try:
        return entries.load(entries.COMPONENTS, name)
    except CallerError:
        raise
    except Exception as error:
        raise CallerError(
            f"hicache/core/components/{name}.py: expected a file that can be imported, found "
            f"{type(error).__name__}: {error}; correct it, or move it elsewhere"
        ) from error
