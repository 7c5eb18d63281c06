"""What the books know of each attention type, from the configuration alone.

Lives here: one small record per component, derived again and not asked of the core, so that a core
that misjudges a window is caught by books that do not. Must not live here: anything about a
particular tree.

One number says what a boundary requires: `need`, the positions of the path, counted from its end
upwards, that must be there. A state counts as standing at the last position of its node.

    boundary d requires of a component the positions max(0, d - need) .. d - 1

    full    everything      swa    the pages that its window touches      mamba    the last one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hicache.core.components import mamba, swa
from hicache.core.config import Config
from hicache.core.errors import CallerError

EVERYTHING = 1 << 40


class Kind(NamedTuple):
    """window: tokens that a token reads, itself included. interval: tokens between depths at which
    a boundary can come to be. slots: pages that an admitted request has besides those by position.
    per_path: copies that a path may keep, 0 for all of them."""

    at: int
    name: str
    positional: bool
    need: int
    window: int
    interval: int
    slots: int
    per_path: int


def _full(index: int, config: Config) -> Kind:
    return Kind(index, "full", True, EVERYTHING, EVERYTHING, config.page_size, 0, 0)


def _window(index: int, config: Config) -> Kind:
    told = config.settings_of(swa.Settings)
    window = told.window_tokens if told is not None else 1
    need = -(-window // config.page_size)
    return Kind(index, "swa", True, need, window, config.page_size, 0, 0)


def _state(index: int, config: Config) -> Kind:
    told = config.settings_of(mamba.Settings) or mamba.Settings()
    interval = told.interval_tokens or config.page_size
    return Kind(index, "mamba", False, 1, 0, interval, 3, told.states_per_path)


_MAKERS: dict[str, Callable[[int, Config], Kind]] = {
    "full": _full,
    "swa": _window,
    "mamba": _state,
}

KNOWN = tuple(_MAKERS)  # in the order in which a configuration has them


def kinds_of(config: Config) -> tuple[Kind, ...]:
    """The components of a configuration, the backbone first. Raises CallerError for one that the
    books know nothing of: then nothing that they say would be worth anything."""
    for name in config.components:
        if name not in _MAKERS:
            raise CallerError(
                f"checks: expected components that the checks know ({', '.join(_MAKERS)}), found "
                f"{name}; tell them of it in invariants/books/kinds.py, or run with --check off"
            )
    return tuple(_MAKERS[name](index, config) for index, name in enumerate(config.components))


def interval_of(config: Config) -> int:
    """Tokens between depths that can be a boundary of every component."""
    return max(kind.interval for kind in kinds_of(config))


def needs_of(kinds: Sequence[Kind], whole_path: bool) -> tuple[int, ...]:
    """Per component, the positions above a boundary that a hit there counts as a use of."""
    return tuple(EVERYTHING if whole_path else kind.need for kind in kinds)
