"""Draws bugs: one or two realistic edits in one function of the core or of its runtime.

    function   by its size, since a longer one has more bugs
    edits      one in 70 % of the bugs, two in 30 %
    kind       by weight, among those that are possible in the function
    place      each of the possible ones equally likely

Bug number n of a seed is the same in every set of that seed. Drawn again are edits that do not
compile, that leave the compiled code as it was, that read a name before it is set, and those that
the set has already. Does not define edits (see edits) or put a bug into the core (see planting).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module

from ..fuzz.draws import Draws
from .edits import EDITS
from .functions import Function, functions, source_of
from .kinds import Kinds, vocabulary
from .planting import Bug, Lines, essence
from .syntax import heads, names_set, names_used, read_too_early

TWO_EDITS_PERCENT = 30
_TRIES = 1000


def draw(seed: int, count: int) -> Iterator[Bug]:
    """Bugs 1 to `count` of this seed."""
    seen: set[tuple[str, str]] = set()
    for number in range(1, count + 1):
        for turn in range(_TRIES):
            bug = _drawn(Draws(seed, "fresh", number, turn), number)
            if bug is None or (bug.module, ast.dump(bug.function)) in seen:
                continue
            seen.add((bug.module, ast.dump(bug.function)))
            yield bug
            break
        else:
            raise AssertionError(f"seed {seed}: no bug {number} in {_TRIES} draws")


def _drawn(draws: Draws, number: int) -> Bug | None:
    """One bug, or None if the draw came to nothing."""
    chosen = draws.weighted([(one, one.size) for one in functions()])
    function = deepcopy(source_of(chosen))
    local = names_set(function)
    two = draws.chance(TWO_EDITS_PERCENT)
    names: list[str] = []
    lines: list[Lines] = []
    for _ in range(1 + two):
        before = essence(chosen.module, chosen.place, function)
        made = _edited(draws, chosen, function)
        if made is None or _is_unbound(function, chosen, local):
            return None
        try:
            after = essence(chosen.module, chosen.place, function)
        except (SyntaxError, ValueError):
            return None
        if before == after:
            return None
        names.append(made[0])
        lines.append(made[1])
    if essence(chosen.module, chosen.place, source_of(chosen)) == after:
        return None  # the second edit undid the first
    return Bug(number, chosen.module, chosen.place, tuple(names), tuple(lines), function)


def _is_unbound(function: ast.FunctionDef, chosen: Function, local: set[str]) -> bool:
    """Whether it reads a name that is not set, or not yet. Any linter would find that."""
    known = vars(import_module(chosen.module)).keys() | vars(builtins).keys()
    unknown = names_used(function) - known
    return bool(unknown) or read_too_early(function, local | names_set(function))


def _edited(draws: Draws, chosen: Function, function: ast.FunctionDef) -> tuple[str, Lines] | None:
    """Makes one edit, in place. Returns its kind and its lines; None if none is possible."""
    kinds = Kinds(function, chosen.place[0].rpartition(".")[0], vocabulary())
    possible = {name: list(edit.changes(function, kinds)) for name, edit in EDITS.items()}
    weighted = [(name, EDITS[name].weight) for name, found in possible.items() if found]
    if not weighted:
        return None
    name = draws.weighted(weighted)
    change = draws.one(possible[name])
    lines = _lines(change.at)
    change.apply()
    ast.fix_missing_locations(function)
    return name, lines


def _lines(at: ast.stmt) -> Lines:
    """The lines of a statement, without those of its blocks."""
    ends = [one.end_lineno or one.lineno for one in heads(at)]
    whole = isinstance(at, ast.If | ast.While | ast.For | ast.Try | ast.With)
    last = max(ends, default=at.lineno) if whole else at.end_lineno or at.lineno
    return at.lineno, last
