"""Properties of each attention type, computed from the configuration alone.

The shadow state do not ask the core for these, so that they find a core that computes a window
wrongly. Of a component from outside they take what its class declares.

`need` says what a boundary requires: the number of positions, counted up from the end of the path,
that must be cached. A state counts as the last position of its node.

    boundary d requires of a component the positions max(0, d - need) .. d - 1

    full    all positions      swa    the pages of its window      mamba    the last position
"""

from typing import NamedTuple

from hicache.core import plugins
from hicache.core.components import MambaSettings, SwaSettings
from hicache.core.config import Config

EVERYTHING = 1 << 40


class Kind(NamedTuple):
    """at: index of the component. window: tokens that a token reads, including itself. interval:
    tokens between possible boundaries. slots: pages of an admitted request besides those by
    position. per_path: maximum number of copies on a path, 0 for no limit.
    """

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
    swa_settings = config.settings_of(SwaSettings)
    window = swa_settings.window_tokens if swa_settings is not None else 1
    need = -(-window // config.page_size)
    return Kind(index, "swa", True, need, window, config.page_size, 0, 0)


def _state(index: int, config: Config) -> Kind:
    mamba_settings = config.settings_of(MambaSettings) or MambaSettings()
    interval = mamba_settings.interval_tokens or config.page_size
    return Kind(index, "mamba", False, 1, 0, interval, 3, mamba_settings.states_per_path)


def _declared(index: int, config: Config) -> Kind:
    name = config.components[index]
    made = plugins.load(plugins.COMPONENTS, name)(config)
    need, window = min(made.window_pages, EVERYTHING), min(made.window_tokens, EVERYTHING)
    return Kind(
        *(index, name, made.positional, need, window), made.interval, made.slots, made.per_path
    )


_MAKERS = {"full": _full, "swa": _window, "mamba": _state}


def kinds_of(config: Config) -> tuple[Kind, ...]:
    """The components of a configuration, the backbone first. Raises CallerError for an unknown
    one."""
    return tuple(
        _MAKERS.get(name, _declared)(index, config) for index, name in enumerate(config.components)
    )


def interval_of(config: Config) -> int:
    """Tokens between depths that can be a boundary of every component."""
    return max(kind.interval for kind in kinds_of(config))
