"""A core's configuration as one flat object, as tapes and recordings spell it.

A setting of a component is spelled with the component's name: `window_tokens` of swa is
`swa_window`. Lives here: that spelling, and back. Must not live here: reading a file, or which
values are legal (hicache/core/config, and each component's file).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hicache.core import registry
from hicache.core.components.base import ComponentSettings
from hicache.core.config import Config
from hicache.core.errors import CallerError

TOKENS = "_tokens"
# Written even where the component is not there, as they were before there were others.
_ALWAYS = {"swa_window": 0, "mamba_interval": 0, "mamba_states_per_path": 0}
# Not written where they are as usual: files from before they were there say the same.
MAY_LACK: dict[str, Any] = {"exchange_pages": ()}
_OWN = tuple(one for one in fields(Config) if one.name != "settings")


def document(config: Config) -> dict[str, Any]:
    """Every setting under its name."""
    found = {one.name: getattr(config, one.name) for one in _OWN} | _ALWAYS
    told = {one.component: one for one in config.settings}
    for name in config.components:
        for key, field in settings_names(name).items():
            found[key] = getattr(told[name], field) if name in told else 0
    return found


def written(config: Config) -> dict[str, Any]:
    """Every setting that a file names."""
    found = document(config)
    return {name: one for name, one in found.items() if one != MAY_LACK.get(name)}


def config_of(values: Mapping[str, Any]) -> Config:
    """The configuration that `document` says. Raises CallerError for a setting that is too many,
    missing or not legal; the core says more."""
    values = {**MAY_LACK, **values}
    components = values.get("components", ())
    keys = types(components)
    if values.keys() != keys.keys():
        strange = sorted(values.keys() ^ keys.keys())
        raise CallerError(
            f"expected the settings of this version, found a difference in {', '.join(strange[:4])}"
        )
    settings: list[ComponentSettings] = []
    used: set[str] = set()
    for name in components:
        known = settings_names(name)
        used |= known.keys()
        if any(values[key] for key in known):
            given = {field: values[key] for key, field in known.items()}
            settings.append(registry.load(registry.COMPONENTS, name).Settings(**given))
    for key in _ALWAYS:
        if key not in used and values[key]:
            raise CallerError(
                f"{key}: expected 0 without {key.partition('_')[0]}, found {values[key]}"
            )
    own = {one.name: values[one.name] for one in _OWN}
    return Config(**own, settings=tuple(settings))


def replaced(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with other values; what was said of components that are gone goes with
    them. Raises CallerError where they are not legal."""
    values = document(config) | dict(changes)
    return config_of({key: values.get(key, 0) for key in types(values["components"])})


def types(components: object) -> dict[str, str]:
    """The name of each setting, and its type in words of Python."""
    known = {one.name: str(one.type) for one in _OWN} | dict.fromkeys(_ALWAYS, "int")
    names = components if isinstance(components, list | tuple) else ()
    for name in names:
        known |= dict.fromkeys(settings_names(name), "int")
    return known


def settings_names(component: object) -> dict[str, str]:
    """The settings of a component: how each is spelled, and its field. None for a component that
    is not there."""
    if str(component) not in registry.stems(registry.COMPONENTS):
        return {}
    module = registry.load(registry.COMPONENTS, str(component))
    if not hasattr(module, "Settings"):
        return {}
    return {
        f"{component}_{one.name.removesuffix(TOKENS)}": one.name for one in fields(module.Settings)
    }


def token_settings(config: Config) -> list[str]:
    """The names of settings that count tokens, as this configuration has them."""
    return [
        key
        for name in config.components
        for key, field in settings_names(name).items()
        if field.endswith(TOKENS)
    ]
