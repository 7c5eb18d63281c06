"""The options of `hicache replay` with several values each: the grid of `hicache sweep`.

Commas separate values, and an option may be given several times. An option whose one value may
have commas (`--components full,swa`) takes one value each time. `all` stands for every name that
the option knows. Does not combine values (see sweeping/grid).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from ..replaying.options import ReplayOptions
from ..replaying.unread import flag
from ..sweeping.grid import Axis, Grid, Value
from ..terminal.options import Names
from ._replay_fleet import add_fleet
from ._replay_load import add_load
from ._replay_sizes import add_host, add_run, add_sizes
from ._replay_storage import add_storage

ALL = "all"
WITH_COMMAS = (
    *("components", "storage", "storage_bandwidth", "prefetch_limit", "slo", "arrivals"),
    *("recompute_cost", "pin"),
)
# options that have one value for all points: what is read, and what makes no new point
ONE_VALUE = ("format", "limit", "block_size", "tokenizer", "check")
NOT_TAKEN = ("json", "requests", "html", "plot", "why", "compare_eviction")


def add_grid(parser: argparse.ArgumentParser) -> None:
    """Adds every option of `hicache replay`. Options that are added to the parser later take one
    value each."""
    parser.register("action", None, _Several)
    add_run(parser, "off")
    add_host(parser)
    add_sizes(parser)
    add_storage(parser)
    add_load(parser)
    add_fleet(parser)
    parser.register("action", None, argparse._StoreAction)


def grid_of(given: dict[str, Any]) -> Grid:
    """The grid of the parsed options, which are taken out of `given`."""
    base: dict[str, Any] = dict.fromkeys(NOT_TAKEN)
    axes: list[Axis] = []
    fixed: dict[str, tuple[str, ...]] = {}
    for name in ReplayOptions.__slots__:
        if name in NOT_TAKEN:
            given.pop(name, None)
            continue
        values = given.pop(name)
        if isinstance(values, _Values):
            if values.given:
                fixed[name] = flag(name), values[0].text
            if len(values) > 1:
                axes.append(Axis(name, tuple(values)))
            base[name] = values[0].value
        else:
            if name == "spread" and values is False:
                fixed[name] = ("--no-spread",)
            elif values is True or (name in ONE_VALUE and values):
                words = () if values is True else (str(values),)
                fixed[name] = flag(name), *words
            base[name] = values
    return Grid(ReplayOptions(**base), tuple(axes), fixed)


class _Values(tuple[Value, ...]):
    """The values of an option. given: whether they are not its default."""

    given = False


class _Several(argparse.Action):
    """Stores a list of values, and adds to it when the option is given again."""

    def __init__(self, option_strings: Sequence[str], dest: str, **given: Any) -> None:
        if option_strings and dest not in ONE_VALUE:
            given["type"] = _listed(dest, given.get("type", str))
        super().__init__(option_strings, dest, **given)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if isinstance(values, _Values):
            before = getattr(namespace, self.dest)
            more = before if isinstance(before, _Values) and before.given else ()
            known = [one.value for one in more]
            values = _Values((*more, *(one for one in values if one.value not in known)))
            values.given = True
        setattr(namespace, self.dest, values)


def _listed(name: str, parse: Callable[[str], Any]) -> Callable[[str], _Values]:
    """A parser of a list of what `parse` reads."""

    def read(text: str) -> _Values:
        if text == ALL and isinstance(parse, Names):
            return _Values(Value(one, parse(one)) for one in parse.known())
        parts = [text] if name in WITH_COMMAS else [part.strip() for part in text.split(",")]
        found: dict[Any, Value] = {}
        for part in parts:
            value = parse(part)
            found.setdefault(value, Value(part, value))
        return _Values(found.values())

    return read
