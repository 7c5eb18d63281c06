"""A core's configuration as one flat JSON object, as sequences and recordings contain it.

The key of a component's setting begins with the component's name: `window_tokens` of swa is
`swa_window`. Values are checked in `hicache/core/config` and by each component.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hicache import registry
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.plugins import ComponentSettings

TOKENS = "_tokens"
# Written even if the configuration does not have the component, for files of earlier versions.
_ALWAYS = {"swa_window": 0, "mamba_interval": 0, "mamba_states_per_path": 0}
_OWN = tuple(field for field in fields(Config) if field.name != "settings")
# Settings that earlier files do not have. They are not written if they have their default values.
_ADDED = (
    *("exchange_pages", "storage", "prefetch_policy", "prefetch_threshold_tokens"),
    *("prefetch_budget_tokens", "max_stores", "store_tries"),
    "ttl_periods",
    *("pin_pages", "pin_host_pages", "passes", "branch_states"),
)
MAY_LACK: dict[str, Any] = {field.name: field.default for field in _OWN if field.name in _ADDED}


def document(config: Config) -> dict[str, Any]:
    """Every setting, by its key."""
    result = {field.name: getattr(config, field.name) for field in _OWN} | _ALWAYS
    message = {setting.component: setting for setting in config.settings}
    for name in config.components:
        for key, field in settings_names(name).items():
            result[key] = getattr(message[name], field) if name in message else 0
    return result


def written(config: Config) -> dict[str, Any]:
    """Every setting that is written to a file, by its key."""
    result = document(config)
    return {name: item for name, item in result.items() if item != MAY_LACK.get(name)}


def config_of(values: Mapping[str, Any]) -> Config:
    """The configuration for a document. Raises CallerError for a setting that is unknown, missing
    or not legal. The core makes further checks."""
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
            arguments = {field: values[key] for key, field in known.items()}
            settings.append(registry.load(registry.COMPONENTS, name).Settings(**arguments))
    for key in _ALWAYS:
        if key not in used and values[key]:
            raise CallerError(
                f"{key}: expected 0 without {key.partition('_')[0]}, found {values[key]}"
            )
    own = {field.name: values[field.name] for field in _OWN}
    return Config(**own, settings=tuple(settings))


def replaced(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with these values changed. Settings of components that it no longer has
    are left out. Raises CallerError for values that are not legal."""
    values = document(config) | dict(changes)
    return config_of({key: values.get(key, 0) for key in types(values["components"])})


def types(components: object) -> dict[str, str]:
    """The type of each setting as Python source, by its key."""
    known = {field.name: str(field.type) for field in _OWN} | dict.fromkeys(_ALWAYS, "int")
    names = components if isinstance(components, list | tuple) else ()
    for name in names:
        known |= dict.fromkeys(settings_names(name), "int")
    return known


def settings_names(component: object) -> dict[str, str]:
    """The settings of a component: the field of each, by its key. Empty for an unknown
    component."""
    if str(component) not in registry.stems(registry.COMPONENTS):
        return {}
    module = registry.load(registry.COMPONENTS, str(component))
    if not hasattr(module, "Settings"):
        return {}
    return {
        f"{component}_{field.name.removesuffix(TOKENS)}": field.name
        for field in fields(module.Settings)
    }


def token_settings(config: Config) -> list[str]:
    """The keys of this configuration's component settings that count tokens."""
    return [
        key
        for name in config.components
        for key, field in settings_names(name).items()
        if field.endswith(TOKENS)
    ]
