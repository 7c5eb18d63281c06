"""Components: kinds of attention. A component answers one question:

    If a request's prefix ends at this node, which nodes on the path must have this component?

`required` is the definition; the contract suite of components compares matching with it on random
paths. The core knows `window_pages` alone, which is the same at every boundary. No code of the core
depends on a component's name. A component sees nodes and the configuration alone.

    a node is required by a boundary b on or below it iff b.end_page - node.end_page < window_pages

A component is a class that is made from a `Config`, with a `residency` and, if it has settings, the
class of these as `Settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

from . import plugins
from .config import UNBOUNDED, Config
from .errors import CallerError
from .plugins import ComponentSettings, Shape
from .types import Pages, kept

# What a prefix requires of its path: the whole path, a window at its end, or one state.
Residency = Literal["path", "window", "state"]


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


class Full:
    """Full attention: every token attends to all earlier tokens, so the whole path is required."""

    name = "full"
    residency: Residency = "path"
    positional = True
    window_tokens = UNBOUNDED
    window_pages = UNBOUNDED
    slots = 0
    least_slots = 0
    least_pages = 1
    per_path = 0

    def __init__(self, config: Config) -> None:
        self.interval = config.page_size

    def required(self, lengths: Sequence[int]) -> range:
        return range(len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return kept(pages[:at]), kept(pages[at:])


@dataclass(frozen=True, slots=True)
class SwaSettings(ComponentSettings):
    """window_tokens: tokens that a token attends to, including itself. Raises CallerError for less
    than 1."""

    component: ClassVar[str] = "swa"
    window_tokens: int

    def __post_init__(self) -> None:
        if self.window_tokens < 1:
            raise CallerError(f"swa_window: expected at least 1 token, found {self.window_tokens}")

    @classmethod
    def of(cls, shape: Shape) -> SwaSettings:
        return cls(shape.window_tokens)


class SlidingWindow:
    """Sliding-window attention: a token attends to the last `window` tokens, so a prefix requires
    the shortest suffix of its path that covers them, or the whole path if it is shorter.

        path     |-- a --|---- b ----|- c -|--- d ---|
        window                     |--------------->  b, c and d are required, a may be a tombstone

    Raises CallerError without settings: the window has no default size.
    """

    name = "swa"
    residency: Residency = "window"
    Settings = SwaSettings
    positional = True
    slots = 0
    least_slots = 0
    per_path = 0

    def __init__(self, config: Config) -> None:
        settings = config.settings_of(SwaSettings)
        if settings is None:
            raise CallerError("swa_window: expected at least 1 token for swa, found no settings")
        self.window_tokens = settings.window_tokens
        self.window_pages = -(-settings.window_tokens // config.page_size)
        self.interval = config.page_size
        self.least_pages = self.window_pages + 1

    def required(self, lengths: Sequence[int]) -> range:
        covered, first = 0, len(lengths)
        while first and covered < self.window_pages:
            first -= 1
            covered += lengths[first]
        return range(first, len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return kept(pages[:at]), kept(pages[at:])


@dataclass(frozen=True, slots=True)
class MambaSettings(ComponentSettings):
    """interval_tokens: tokens between depths at which a request stores states; 0 means one page.
    states_per_path: the largest number of states kept on one path; 0 means no limit. Raises
    CallerError for negative values."""

    component: ClassVar[str] = "mamba"
    interval_tokens: int = 0
    states_per_path: int = 0

    def __post_init__(self) -> None:
        for name, value in (
            ("mamba_interval", self.interval_tokens),
            ("mamba_states_per_path", self.states_per_path),
        ):
            if value < 0:
                raise CallerError(f"{name}: expected 0 or more, found {value}")

    @classmethod
    def of(cls, shape: Shape) -> MambaSettings:
        return cls(shape.interval_tokens, shape.states_per_path)


class Mamba:
    """Mamba and other linear recurrences. One state summarises all tokens read so far, so a prefix
    requires the state at exactly its end, and nothing above.

    A request overwrites its working state with every token, so it first copies the state of the
    prefix that it reuses. It stores copies of its own state at depths where a node can end, in turn
    in two checkpoint slots, so that the older copy stays intact while the newer one is written.
    Raises CallerError for an interval that is not a multiple of the page size.
    """

    name = "mamba"
    residency: Residency = "state"
    Settings = MambaSettings
    positional = False
    window_tokens = 0
    window_pages = 1
    slots = 3
    least_slots = 1
    least_pages = 1

    def __init__(self, config: Config) -> None:
        settings = config.settings_of(MambaSettings) or MambaSettings()
        self.interval = settings.interval_tokens or config.page_size
        self.per_path = settings.states_per_path
        if self.interval % config.page_size:
            raise CallerError(
                f"mamba_interval: expected a multiple of the page's {config.page_size} tokens, "
                f"found {self.interval}"
            )

    def required(self, lengths: Sequence[int]) -> range:
        return range(max(0, len(lengths) - 1), len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return None, pages


PLUGINS: dict[str, Any] = {kind.name: kind for kind in (Full, SlidingWindow, Mamba)}


def residency(name: str) -> Residency:
    """What the component requires of a path. Raises CallerError for an unknown name and for a
    component that does not say."""
    declared: Any = getattr(plugins.load(plugins.COMPONENTS, name), "residency", None)
    kinds = get_args(Residency)
    if declared not in kinds:
        raise CallerError(f"{name}: expected a residency, one of {', '.join(kinds)}")
    known: Residency = declared
    return known


def known() -> tuple[str, ...]:
    """The names of all components, in the order in which a configuration lists them."""
    kinds = get_args(Residency)
    names = plugins.stems(plugins.COMPONENTS)
    return tuple(sorted(names, key=lambda name: (kinds.index(residency(name)), name)))


def settings_for(names: Iterable[str], shape: Shape) -> tuple[ComponentSettings, ...]:
    """The settings of those components that have settings."""
    classes = [getattr(plugins.load(plugins.COMPONENTS, name), "Settings", None) for name in names]
    return tuple(settings.of(shape) for settings in classes if settings is not None)
