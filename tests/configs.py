"""A core's configuration with the settings of its components under the names that sequences
have."""

from typing import Any

from hicache.core.components import MambaSettings, SwaSettings
from hicache.core.config import Config
from hicache.runtime.config_document import document, replaced


def configured(*sizes: Any, **settings: Any) -> Config:
    """`Config(...)`, where `swa_window`, `mamba_interval` and `mamba_states_per_path` may be said;
    0 is as if nothing were."""
    window = settings.pop("swa_window", 0)
    states = settings.pop("mamba_interval", 0), settings.pop("mamba_states_per_path", 0)
    message: list[Any] = [SwaSettings(window)] if window else []
    message += [MambaSettings(*states)] if any(states) else []
    return Config(*sizes, **settings, settings=tuple(message))


def message_of(config: Config, name: str) -> int:
    """What it says under that name; 0 where it says nothing."""
    return int(document(config).get(name, 0))


def changed(config: Config, **settings: Any) -> Config:
    """The configuration with other settings under those names."""
    return replaced(config, settings)
