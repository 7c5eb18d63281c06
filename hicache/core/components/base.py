"""What a component is: the answer to one question, and nothing else follows from its name.

    If a request's prefix ends at this node, which nodes on the path must hold this component?

`required` is the definition; `window_pages` is what the core goes by, and the contract suite of
components holds matching by it to the definition on random paths. A component must not touch pools,
transfers or other components.

    a node is required by a boundary b on or below it iff b.end_page - node.end_page < window_pages
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, get_args

from .. import registry
from ..errors import CallerError
from ..types import Pages

UNBOUNDED = 1 << 40
# How much of a path a prefix requires: all of it, the end that a window covers, or one state.
Residency = Literal["path", "window", "state"]


class Shape(NamedTuple):
    """What a model or a user says of all components; each takes what it needs. 0: not said."""

    window_tokens: int = 0
    interval_tokens: int = 0
    states_per_path: int = 0


class ComponentSettings:
    """What a configuration says of one component. A component that has settings defines a frozen
    dataclass `Settings` of integers, derived from this; a name that counts tokens ends in _tokens.
    """

    __slots__ = ()
    component: ClassVar[str]

    @classmethod
    def of(cls, shape: Shape) -> Self:
        """What of a shape is the component's."""
        raise NotImplementedError


class Component(Protocol):
    """One attention type's residency rule.

    positional   whether a node holds one page per page of its run; otherwise it holds one state,
                 at its end, which a request copies before it overwrites it (copy on use).
    window_tokens tokens that a token reads, itself included (UNBOUNDED: all; 0 for a state).
    window_pages pages right above a boundary that it requires (UNBOUNDED: all of them; 1: the node
                 that ends there).
    slots        pages of an admitted request's own besides those by position: a working state and
                 the halves of a ping-pong buffer for checkpoints; 0 for a positional component.
    least_slots  what a request cannot run without; with fewer than `slots` nothing is kept of it.
    least_pages  the smallest device pool that any request can run in.
    interval     tokens between depths at which a boundary can be made.
    per_path     states kept on one path; 0 is all of them.
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
        """Indices of the path's nodes that must hold the component; lengths: pages per node."""

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        """What the upper and the lower half hold when a node splits `at` pages from its start."""


def residency(name: str) -> Residency:
    """What the component's file declares. Raises CallerError for a name that is not there, and for
    a file that declares none."""
    said: Any = getattr(_module(name), "RESIDENCY", None)
    if said not in get_args(Residency):
        kinds = ", ".join(get_args(Residency))
        raise CallerError(
            f"hicache/core/components/{name}.py: expected RESIDENCY, one of {kinds}, found {said!r}"
        )
    declared: Residency = said
    return declared


def known() -> tuple[str, ...]:
    """Every component, in the order in which a configuration has them."""
    kinds = get_args(Residency)
    return tuple(
        sorted(
            registry.stems(registry.COMPONENTS), key=lambda one: (kinds.index(residency(one)), one)
        )
    )


def settings_for(names: Iterable[str], shape: Shape) -> tuple[ComponentSettings, ...]:
    """The settings of those components that have some."""
    found = [getattr(_module(name), "Settings", None) for name in names]
    return tuple(settings.of(shape) for settings in found if settings is not None)


def _module(name: str) -> Any:
    return registry.load(registry.COMPONENTS, name)
