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

from hicache.core.config import Config

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
    need = -(-config.swa_window // config.page_size)
    return Kind(index, "swa", True, need, config.swa_window, config.page_size, 0, 0)


def _state(index: int, config: Config) -> Kind:
    limit = config.mamba_states_per_path
    return Kind(index, "mamba", False, 1, 0, config.mamba_interval or config.page_size, 3, limit)


_MAKERS: dict[str, Callable[[int, Config], Kind]] = {
    "full": _full,
    "swa": _window,
    "mamba": _state,
}


def kinds_of(config: Config) -> tuple[Kind, ...]:
    """The components of a configuration, the backbone first."""
    return tuple(_MAKERS[name](index, config) for index, name in enumerate(config.components))


def needs_of(kinds: Sequence[Kind], whole_path: bool) -> tuple[int, ...]:
    """Per component, the positions above a boundary that a hit there counts as a use of."""
    return tuple(EVERYTHING if whole_path else kind.need for kind in kinds)
