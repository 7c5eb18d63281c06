"""The options of `hicache replay` with several values each: the grid of `hicache sweep`.

Commas separate values, and an option may be given several times. An option whose one value may
have commas (`--components full,swa`) takes one value each time. `all` stands for every name that
the option knows. Does not combine values (see sweeping/grid).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

from ..replaying.options import ReplayOptions
from ..sweeping.grid import Axis, Grid, Value
from ..terminal.options import Declared, Names
from ._options import of_replay

ALL = "all"
WITH_COMMAS = tuple(one.name for one in of_replay() if one.row.commas)


def declared() -> list[Declared]:
    """Every option of `hicache replay`; those that may vary are lists."""
    return [_as_list(one) if _varies(one) else one for one in of_replay()]


def _as_list(one: Declared) -> Declared:
    shown = "" if one.default is None else f" (default: {one.default})"
    about = one.row.help if isinstance(one.row.help, str) else one.row.help()
    row = replace(one.row, parse=_listed(one), several=True, help=about + shown)
    return replace(one, default=None, row=row)


def grid_of(given: dict[str, Any]) -> Grid:
    """The grid of the parsed options, which are taken out of `given`."""
    base: dict[str, Any] = {}
    axes: list[Axis] = []
    fixed: dict[str, tuple[str, ...]] = {}
    for one in of_replay():
        name, found = one.name, given.pop(one.name)
        if _varies(one) and found is None:
            found = one.default
        elif _varies(one):
            kept: dict[Any, Value] = {}
            for value in chain.from_iterable(found):
                kept.setdefault(value.value, value)
            values = tuple(kept.values())
            fixed[name] = one.flag, values[0].text
            if len(values) > 1:
                axes.append(Axis(name, values))
            found = values[0].value
        elif found != one.default and not one.row.positional:
            fixed[name] = (one.flag,) if found is True else (one.flag, str(found))
        base[name] = found
    return Grid(ReplayOptions(**base), tuple(axes), fixed)


def _varies(one: Declared) -> bool:
    """Whether the option may have several values."""
    return not (one.row.parse is None or one.row.positional or one.row.one_value)


def _listed(one: Declared) -> Callable[[str], tuple[Value, ...]]:
    """A parser of a list of what the option reads."""
    parse = one.row.parse
    assert parse is not None

    def read(text: str) -> tuple[Value, ...]:
        if text == ALL and isinstance(parse, Names):
            return tuple(Value(name, parse(name)) for name in parse.known())
        parts = [text] if one.row.commas else [part.strip() for part in text.split(",")]
        return tuple(Value(part, parse(part)) for part in parts)

    return read
