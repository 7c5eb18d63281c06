"""Policies, schedulers and time models that the user names on the command line.

    --eviction ./mine.py:Mine     a class (or function) of a file, called without arguments

Finds and loads such a plugin, and passes it to other processes. Only plugins that the command line
names are loaded; a trace or sequence cannot name code.
"""

import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from hicache import registry
from hicache.core.errors import CallerError

from .terminal.options import Names

# By folder: the name that its modules define (empty: a plugin is the maker itself), what a plugin
# must have, and the arguments with which
# it is made here; None to make none.
_KINDS: dict[str, tuple[str, tuple[str, ...], tuple[Any, ...] | None]] = {
    registry.EVICTION_POLICIES: ("", ("name", "whole_path", "rank"), ()),
    registry.WRITE_POLICIES: ("", ("name", "threshold", "on_evict", "contiguous"), ()),
    registry.SCHEDULERS: ("scheduler", ("push", "push_front", "best", "remove"), (1,)),
    registry.TIMES: ("times", (), None),
}
_texts: dict[tuple[str, str], str] = {}  # the text of the option, by package and name

Loaded: TypeAlias = tuple[tuple[str, str], ...]  # package and text of the option


def plugin(package: str) -> Names:
    """Returns a parser of an option's value: a built-in name, or a plugin of the user."""

    def parse(text: str) -> str:
        try:
            return find(package, text)
        except CallerError as error:
            raise ValueError(str(error).removeprefix(f"{registry.kind(package)}: ")) from None

    return Names(parse, lambda: registry.spellings(package), package)


def spelled_out(package: str) -> str:
    """The plugins of a folder, for a help text."""
    return f"{', '.join(registry.spellings(package))}, or path.py:Name"


def find(package: str, text: str) -> str:
    """The name of the plugin for this text. Loads a plugin of the user. Raises CallerError."""
    stem = text.replace("-", "_")
    for name in registry.spellings(package):
        if name.replace("-", "_") == stem:
            try:
                registry.load(package, name)
            except ImportError as error:
                raise registry.uninstalled(package, name, error) from error
            return name
    if ".py:" not in text:
        raise registry.missing(package, text)
    return _added(package, text)


def spelled(package: str, name: str) -> str:
    """The text with which the user named this plugin; the name itself for a built-in one."""
    return _texts.get((package, name), name)


def source_of(package: str, name: str) -> str | None:
    """The file with the code of a user's plugin; None for a built-in one."""
    text = _texts.get((package, name))
    return text and text.rpartition(":")[0]


def environment() -> Loaded:
    """All plugins that were loaded here, as arguments of `load` in another process."""
    return tuple((package, text) for (package, _), text in _texts.items())


def files() -> dict[str, str]:
    """The files that were loaded, by a name for messages: inputs, which no output may replace."""
    return {f"file of {text}": text.rpartition(":")[0] for text in _texts.values()}


def forget() -> None:
    """What was loaded here is unknown again."""
    for package, name in _texts:
        registry.remove(package, name)
    _texts.clear()


def load(loaded: Sequence[Sequence[str]]) -> None:
    """Loads the plugins that another process was given, unless they are loaded already."""
    for package, text in loaded:
        if text not in _texts.values():
            find(package, text)


def _added(package: str, text: str) -> str:
    """The name of a plugin of the user's file, which is known from now on."""
    path, _, attribute = text.rpartition(":")
    if not os.path.isfile(path):
        raise CallerError(f"expected path.py:Name of a file, found no file {path!r}")
    module_name = f"{registry.OUTSIDE}{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look up the module of a class here
    word, parts, arguments = _KINDS[package]
    try:
        spec.loader.exec_module(module)
        maker = getattr(module, attribute, None)
        made = maker if maker is None or arguments is None else maker(*arguments)
    except (Exception, SystemExit) as error:
        raise CallerError(f"{text}: expected no exception, found {_summary(error)}") from None
    if made is None:
        raise CallerError(f"{path}: expected {attribute or 'a name'} in it, found none")
    for part in parts:
        if not hasattr(made, part):
            raise CallerError(f"{text}: expected {part}, found none (docs/library.md)")
    name = str(getattr(made, "name", None) or getattr(maker, "__name__", attribute)).lower()
    registry.add(package, name, SimpleNamespace(**{word: maker}) if word else maker)
    _texts[package, name] = text
    return name


def _summary(error: BaseException) -> str:
    """The error in one line, and the last line of a user's file on the way to it."""
    text = " ".join(str(error).split())[:200]
    lines = [
        f" ({frame.f_code.co_qualname}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(registry.OUTSIDE)
    ]
    return f"{type(error).__name__}{text and f': {text}'}{''.join(lines[-1:])}"
