"""What shrinking knows of sequences of our core: configurations and executors that are simpler,
and operations of many events."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.runtime.config_document import document, replaced, settings_names, token_settings
from invariants.fuzz.sequence import Entry, FuzzSequence
from invariants.fuzz.shrink import Ways

from .executors import DEVICE, FILES, REPLIES

_EXECUTORS = (REPLIES, DEVICE, FILES)  # from simple to complex; other devices rank last
_SHAPE = ("page_size", "device_pages", "host_pages", "components", "settings")
_USUAL = {field.name: field.default for field in fields(Config) if field.name not in _SHAPE}


def _unusual(values: dict[str, Any]) -> dict[str, Any]:
    """The settings beside sizes and components that are not at their defaults, with these."""
    usual = {name: _USUAL.get(name, 0) for name in values if name not in _SHAPE}
    return {name: value for name, value in usual.items() if values[name] != value}


def _weight(sequence: FuzzSequence) -> tuple[int, ...]:
    config, values = sequence.config, document(sequence.config)
    return (
        sequence.ranks,
        len(config.components),
        config.page_size,
        len(_unusual(values)),
        sum(config.host_pages) + sum(config.device_pages),
        sum(values[name] for name in token_settings(config)),
        _EXECUTORS.index(sequence.executor) if sequence.executor in _EXECUTORS else len(_EXECUTORS),
        sequence.pairs,
    )


def _parts(entry: Entry) -> Iterator[Entry]:
    """Taking all replies, or all pages, or one of several operations."""
    yield entry._replace(op="quiesce", args={})
    if entry.op == "several":
        yield entry._replace(op="hoard", args={"take": True})
        for name, args in entry.args["steps"]:
            yield entry._replace(op=name, args=args)


def _simpler(sequence: FuzzSequence) -> Iterator[FuzzSequence]:
    """Fewer ranks, no pairs, fewer components, smaller pages, default settings, smaller pools, a
    simpler executor."""
    config: Config = sequence.config
    values = document(config)
    for ranks in range(1, sequence.ranks):
        yield replace(sequence, ranks=ranks)
    if sequence.pairs:
        yield replace(sequence, pairs=False)
    for index in range(1, len(config.components)):
        yield from _with(sequence, _without_component(config, index))
    for page in (1, 2, 4):
        if page < config.page_size:
            yield from _with(sequence, {"page_size": page})
    for name, usual in _unusual(values).items():
        yield from _with(sequence, {name: usual})
    yield from _with(sequence, {"host_pages": (0,) * len(config.components)})
    for name in ("host_pages", "device_pages"):
        sizes = getattr(config, name)
        for index, size in enumerate(sizes):
            for less in dict.fromkeys((0, 1, 2, 3, 4, size // 2, size - 2, size - 1)):
                if 0 <= less < size:
                    yield from _with(sequence, {name: (*sizes[:index], less, *sizes[index + 1 :])})
    for name in token_settings(config):
        value = values[name]
        for less in dict.fromkeys((1, config.page_size, value // 2, value - 1)):
            if 0 < less < value:
                yield from _with(sequence, {name: less})
    for executor in (REPLIES, *((DEVICE,) if sequence.executor != FILES else ())):
        yield replace(sequence, executor=executor)


def _with(sequence: FuzzSequence, settings: dict[str, Any]) -> Iterator[FuzzSequence]:
    """The sequence with other settings, if they are legal."""
    try:
        yield replace(sequence, config=replaced(sequence.config, settings))
    except CallerError:
        return


def _without_component(config: Config, index: int) -> dict[str, Any]:
    """The settings without a component, and without the settings of the component."""
    settings: dict[str, Any] = dict.fromkeys(settings_names(config.components[index]), 0)
    for key in ("components", "device_pages", "host_pages"):
        values = getattr(config, key)
        settings[key] = values[:index] + values[index + 1 :]
    return settings


WAYS = Ways(_weight, _simpler, _parts)
