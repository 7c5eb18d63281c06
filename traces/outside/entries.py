"""A user's own policy or scheduler: named on the command line, loaded, and held to the contract
that ours are held to.

    --eviction ./mine.py:Mine     a class (or function) of a file, called without arguments
    --eviction mine               an entry point of the group `hicache.eviction_policies`

Lives here: finding, checking and naming such entries, and handing them to other processes. Only
what the user names on the command line is loaded: a trace or a tape never names code.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from hicache.core import registry
from hicache.core.errors import CallerError
from invariants.contracts import eviction_policies, schedulers, write_policies


class _Kind(NamedTuple):
    """maker: what an entry of the folder defines. wrong: tries one. takes: what a scheduler is made
    with."""

    group: str
    maker: str
    wrong: Callable[[Any], str]
    takes: tuple[int, ...] = ()


_KINDS = {
    registry.EVICTION_POLICIES: _Kind(
        "hicache.eviction_policies", "policy", eviction_policies.wrong
    ),
    registry.WRITE_POLICIES: _Kind("hicache.write_policies", "policy", write_policies.wrong),
    registry.SCHEDULERS: _Kind("hicache.schedulers", "scheduler", schedulers.wrong, (1,)),
}
_said: dict[tuple[str, str], str] = {}  # what the user wrote for an entry, by package and name

Outside = tuple[tuple[str, str], ...]  # package, and what the user wrote


def entry(package: str) -> Callable[[str], str]:
    """A parser of an option's value: the name of ours, or of a user's own that is known then."""

    def parse(text: str) -> str:
        try:
            return find(package, text)
        except CallerError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def find(package: str, text: str) -> str:
    """The name of the entry that the user wrote this for, loaded where it is none of ours. Raises
    CallerError, one line."""
    stem = text.replace("-", "_")
    for name in registry.spellings(package):
        if name.replace("-", "_") == stem:
            return name
    if text.endswith(".py"):
        raise CallerError(f"expected path.py:Name, found {text!r} without a name")
    made = _from_file(text) if ".py:" in text else _from_entry_point(package, text)
    name = _check(package, text, made)
    registry.add(package, name, SimpleNamespace(**{_KINDS[package].maker: made}))
    _said[package, name] = text
    return name


def spelled(package: str, name: str) -> str:
    """What the user would write for this name."""
    return _said.get((package, name), name)


def given() -> Outside:
    """All that was loaded here, for another process to `load`."""
    return tuple((package, text) for (package, _), text in _said.items())


def options() -> list[str]:
    """The words of a command line that make known what was loaded here."""
    flags = ((package, how.split()[0]) for package, how in registry.OPEN.items())
    return [
        word
        for package, flag in flags
        for (kind, _), text in _said.items()
        if kind == package
        for word in (flag, text)
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """For commands that play a tape: the policies of a user's own that it names."""
    for flag, package in (
        ("--eviction", registry.EVICTION_POLICIES),
        ("--write-policy", registry.WRITE_POLICIES),
    ):
        parser.add_argument(
            flag,
            type=entry(package),
            metavar="path.py:Name",
            help="a policy of your own that the tape names",
        )


def load(outside: Sequence[Sequence[str]]) -> None:
    """What another process was given, unless it is here already."""
    for package, text in outside:
        if text not in _said.values():
            find(package, text)


def _from_file(text: str) -> Any:
    path, _, attribute = text.rpartition(":")
    if not Path(path).is_file():
        raise CallerError(f"expected path.py:Name of a file, found no file {path!r}")
    name = f"outside_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for the module of a class
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CallerError(f"{path}: expected a file that loads, found {_told(error)}") from None
    if not hasattr(module, attribute):
        raise CallerError(f"{path}: expected {attribute or 'a name'} in it, found none")
    return getattr(module, attribute)


def _from_entry_point(package: str, text: str) -> Any:
    group = _KINDS[package].group
    found = import_module("importlib.metadata").entry_points(group=group)
    if text not in found.names:
        raise registry.missing(package, text)
    try:
        return found[text].load()
    except Exception as error:
        raise CallerError(f"{group}, {text}: expected to load it, found {_told(error)}") from None


def _check(package: str, text: str, made: Any) -> str:
    """The entry's name. Raises CallerError unless it keeps to the contract of its kind."""
    kind = _KINDS[package]
    try:
        one = made(*kind.takes)
        found = kind.wrong(made if kind.takes else one)
        name = getattr(one, "name", None) or getattr(made, "__name__", "")
    except Exception as error:
        found, name = f"expected no exception, found {_told(error)}", ""
    if found:
        raise CallerError(f"{text}: {found}; docs/policies.md says what is asked")
    return str(name).lower()


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
