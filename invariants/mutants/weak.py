"""Weak mutation of guards: in how many events each would have decided otherwise, were it different.

Within `weighed`, every guard of the core and of the specification is evaluated as it stands, and
then once more with one of its conditions left out or one comparison relaxed (`<=` for `<`). That
has no effect on the run: what the guard itself did not evaluate is evaluated only if it changes
nothing. A changed guard that would raise an error, or make another call that changes something,
decides otherwise, too. A bug in a guard that has never decided otherwise cannot have been seen: no
sequence has tested it.

A guard is a condition of `if`, `while`, `x if y else z`, of a comprehension, of `any` and `all`, or
what a function of type bool returns. Not guards: asserts, and conditions whose only consequence is
an exception (see `refusals`).
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from hicache.core.errors import CallerError
from hicache.core.events import Event
from hicache.core.view import CoreView

from .sources import (
    BOUNDARY,
    LONGEST,
    PACKAGE,
    compiled,
    defined,
    functions,
    modules,
    short,
    source,
)

SPECIFICATION = "invariants.spec"
PLACES = (PACKAGE, SPECIFICATION)
# What reads settings and events, or compares: its conditions decide nothing about pages.
_NOT_DECIDING = {
    *(f"{PACKAGE}.{name}" for name in ("config", "errors", "registry", "validation", "view")),
    f"{SPECIFICATION}.lockstep",
}
NAME = "_a_guard_is_weighed"
UNDECIDED = Path(__file__).with_name("undecided.txt")
ENOUGH = 20  # events of a sequence in which a change decides otherwise
_OPS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
# Queries of both, which change nothing but what they remember for the next time.
_QUERIES = frozenset(
    (
        *("free", "available", "cached", "had", "used", "held", "nodes", "nodes_below", "hopeful"),
        *("digests", "digests_of", "digests_of_copy", "missing", "pinned_beside", "known", "kept"),
    )
)
_MUTATING = frozenset(
    (
        *("append", "insert", "extend", "pop", "popleft", "popitem", "remove", "discard", "add"),
        *("clear", "update", "sort", "setdefault", "heappush", "heappop", "heapify", "next"),
    )
)
Formula = tuple[Any, ...]  # ("and" | "or", parts), ("not", part), ("is", at), ("compare", at, ops)


Place = tuple[str, int]  # a function, and the number of a guard in it
Change = tuple[str, Formula]  # its name, and what it decides


class Effect(Exception):
    """A changed guard would call what changes something, and the guard as it stands does not."""


@dataclass(frozen=True)
class Guard:
    """A guard with its changes. where: its file and line. text: its source."""

    where: str
    text: str
    formula: Formula
    harmless: tuple[bool, ...]
    changed: tuple[Change, ...]


class Reach:
    """Weighs the guards of one sequence. By the name of each change: in how many events its guard
    was evaluated, and in how many of them it would have decided otherwise; after `ENOUGH` of these
    it is left alone, and a function without others runs as it was. Observes the core."""

    def __init__(self) -> None:
        self.evaluated: Counter[str] = Counter()
        self.otherwise: Counter[str] = Counter()
        self.events = 0
        self._asks = True
        self._open = {place: list(guard.changed) for place, guard in guards().items()}
        self._left = Counter({name: 0 for name, _ in self._open})
        for (name, _), changed in self._open.items():
            self._left[name] += len(changed)
        self._met: dict[str, int] = {}  # by change, the last event in which it was evaluated
        self._other: dict[str, int] = {}  # and the last in which it would have decided otherwise

    def on_event(self, event: Event, view: CoreView) -> None:
        self.events += 1

    def on_outcomes(self, event: Event, outcomes: Any, view: CoreView) -> None:
        """Nothing is counted by outcome."""

    def weigh(self, place: Place, *thunks: Callable[[], Any]) -> bool:
        """Evaluates the guard at this place, and then its changes."""
        guard = guards()[place]
        known: dict[int, Any] = {}
        decided = bool(_value(guard.formula, thunks, known, None))
        if not self._asks or not self._open[place]:
            return decided
        self._asks = False  # what is evaluated once more is not itself weighed
        for one in tuple(self._open[place]):
            name, formula = one
            if self._other.get(name) == self.events:
                continue  # it counts once in an event
            if self._met.get(name) != self.events:
                self._met[name] = self.events
                self.evaluated[name] += 1
            try:
                other = bool(_value(formula, thunks, known, guard.harmless))
            except Exception:  # among them Effect
                other = not decided
            if other != decided:
                self._other[name] = self.events
                self.otherwise[name] += 1
                if self.otherwise[name] >= ENOUGH:
                    self._close(place, one)
        self._asks = True
        return decided

    def _close(self, place: Place, change: Change) -> None:
        self._open[place].remove(change)
        self._left[place[0]] -= 1
        if not self._left[place[0]]:
            function, _, before = _instrumented()[1][place[0]]
            function.__code__ = before


def _value(
    formula: Formula, thunks: Any, known: dict[int, Any], harmless: tuple[bool, ...] | None
) -> Any:
    kind = formula[0]
    if kind == "and":
        return all(_value(one, thunks, known, harmless) for one in formula[1])
    if kind == "or":
        return any(_value(one, thunks, known, harmless) for one in formula[1])
    if kind == "not":
        return not _value(formula[1], thunks, known, harmless)
    if kind == "constant":
        return formula[1]
    at = formula[1]
    if at not in known:
        if harmless is not None and not harmless[at]:
            raise Effect
        known[at] = thunks[at]()
    if kind == "is":
        return known[at]
    values = known[at]
    return all(op(values[i], values[i + 1]) for i, op in enumerate(formula[2]))


def _changes(node: ast.expr, formula: Formula) -> Iterator[tuple[str, Formula]]:
    """The changes of a guard, with what they do."""
    if isinstance(node, ast.BoolOp):
        parts = formula[1]
        for at, one in enumerate(node.values):
            rest = [*parts[:at], *parts[at + 1 :]]
            left = rest[0] if len(rest) == 1 else (formula[0], rest)
            yield f"without {ast.unparse(one)}", left
            for text, changed in _changes(one, parts[at]):
                yield text, (formula[0], [*parts[:at], changed, *parts[at + 1 :]])
    elif isinstance(node, ast.UnaryOp) and formula[0] == "not":
        for text, changed in _changes(node.operand, formula[1]):
            yield text, ("not", changed)
    elif isinstance(node, ast.Compare) and formula[0] == "compare":
        for at, op in enumerate(node.ops):
            if type(op) in BOUNDARY:
                new = BOUNDARY[type(op)]
                ops = [_OPS[new] if i == at else one for i, one in enumerate(formula[2])]
                yield f"{_SIGNS[new]} for {_SIGNS[type(op)]}", ("compare", formula[1], ops)


class _Instrument(ast.NodeTransformer):
    """Lets the guards of one function be weighed. found: its guards, in their order."""

    def __init__(self, file: str, function: str, is_bool: bool) -> None:
        self._file, self._function, self._is_bool = file, function, is_bool
        self.found: list[Guard] = []
        self._seen: Counter[str] = Counter()

    def visit_If(self, node: ast.If) -> Any:
        if not _only_raises(node):
            node.test = self._weighed(node.test)
        else:
            node.test = self.visit(node.test)
        node.body = [self.visit(one) for one in node.body]
        node.orelse = [self.visit(one) for one in node.orelse]
        return node

    def visit_While(self, node: ast.While | ast.IfExp) -> Any:
        test = self._weighed(node.test)
        self.generic_visit(node)
        node.test = test
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self.visit_While(node)

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        tests = [self._weighed(one) for one in node.ifs]
        node.ifs = []
        self.generic_visit(node)
        node.ifs = tests
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        named = isinstance(node.func, ast.Name) and node.func.id in ("any", "all")
        inner = node.args[0] if named and len(node.args) == 1 else None
        if isinstance(inner, ast.GeneratorExp):
            inner.generators = [self.visit(one) for one in inner.generators]
            inner.elt = self._weighed(inner.elt)
            return node
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> Any:
        if self._is_bool and isinstance(node.value, ast.BoolOp | ast.Compare | ast.UnaryOp):
            node.value = self._weighed(node.value)
            return node
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        return node

    def _weighed(self, test: ast.expr) -> ast.expr:
        """The test as a call that evaluates and weighs it."""
        if isinstance(test, ast.Constant) or any(
            isinstance(one, ast.NamedExpr) for one in ast.walk(test)
        ):
            return test
        plain = deepcopy(test)
        atoms: list[ast.expr] = []
        harmless: list[bool] = []
        formula = self._formula(test, atoms, harmless)
        changed = list(_changes(plain, formula))
        if not isinstance(plain, ast.BoolOp):
            changed += [("always", ("constant", True)), ("never", ("constant", False))]
        named = [(self._name(text, plain), one) for text, one in changed]
        place: Any = ast.Constant((self._function, len(self.found)))  # type: ignore[arg-type]
        where, text = f"{self._file}:{plain.lineno}", ast.unparse(plain)
        self.found.append(Guard(where, text, formula, tuple(harmless), tuple(named)))
        nothing = ast.arguments([], [], None, [], [], None, [])
        thunks = [ast.Lambda(nothing, one) for one in atoms]
        call = ast.Call(ast.Name(NAME, ast.Load()), [place, *thunks], [])
        return ast.fix_missing_locations(ast.copy_location(call, test))

    def _name(self, text: str, test: ast.expr) -> str:
        name = f"{self._function}:{_cut(text)}:{_cut(ast.unparse(test))}"
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}#{self._seen[name]}"

    def _formula(self, node: ast.expr, atoms: list[ast.expr], harmless: list[bool]) -> Formula:
        if isinstance(node, ast.BoolOp):
            parts = [self._formula(one, atoms, harmless) for one in node.values]
            return ("and" if isinstance(node.op, ast.And) else "or"), parts
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return "not", self._formula(node.operand, atoms, harmless)
        harmless.append(_is_harmless(node))
        if isinstance(node, ast.Compare):
            values: list[ast.expr] = [self.visit(node.left), *map(self.visit, node.comparators)]
            atoms.append(ast.Tuple(values, ast.Load()))
            return "compare", len(atoms) - 1, [_OPS[type(op)] for op in node.ops]
        atoms.append(self.visit(node))
        return "is", len(atoms) - 1


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _only_raises(node: ast.If) -> bool:
    return isinstance(node.body[0], ast.Raise) and not node.orelse


def _is_harmless(node: ast.expr) -> bool:
    """Whether evaluating it changes nothing, by what it calls."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            name = getattr(one.func, "id", getattr(one.func, "attr", ""))
            if name in changing() or name in _MUTATING:
                return False
    return True


@cache
def changing() -> frozenset[str]:
    """The names of functions that change something that is not their own, by what they assign or
    call."""
    bodies: dict[str, list[ast.FunctionDef]] = {}
    for module in modules(PLACES):
        for (name, _), node in defined(source(module)).items():
            bodies.setdefault(name.split(".")[-1], []).append(node)
    found = {name for name, nodes in bodies.items() if any(map(_assigns, nodes))}
    found -= {"__init__", *_QUERIES}
    size = -1
    while size != len(found):
        size = len(found)
        for name, nodes in bodies.items():
            calls = (one for node in nodes for one in ast.walk(node) if isinstance(one, ast.Call))
            names = {getattr(one.func, "id", getattr(one.func, "attr", "")) for one in calls}
            if names & found and name not in _QUERIES:
                found.add(name)
    return frozenset(found)


def _assigns(function: ast.FunctionDef) -> bool:
    """Whether it assigns to, or changes, what it was given or reaches through it."""
    made = {
        one.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.comprehension)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for one in ast.walk(target)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Attribute) or _root(node) not in made:
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            own = isinstance(node.func.value, ast.Name) and node.func.value.id in made
            if node.func.attr in _MUTATING and not own:
                return True
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@cache
def _instrumented() -> tuple[
    dict[Place, Guard], dict[str, tuple[FunctionType, CodeType, CodeType]]
]:
    """The guards by place; and by its name each function that has some, its code in which they are
    weighed, and its own code."""
    found: dict[Place, Guard] = {}
    codes: dict[str, tuple[FunctionType, CodeType, CodeType]] = {}
    for module in sorted({*modules(PLACES)} - _NOT_DECIDING):
        known = functions(module)
        for place, node in defined(source(module)).items():
            if place not in known:
                continue
            name = f"{short(module)}:{place[0]}"
            is_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
            instrument = _Instrument(module.replace(".", "/") + ".py", name, is_bool)
            new = deepcopy(node)
            new.body = [instrument.visit(one) for one in new.body]
            found.update(((name, at), one) for at, one in enumerate(instrument.found))
            if instrument.found:
                code = compiled(module, place, new, False)
                codes[name] = (known[place], code, known[place].__code__)
    return found, codes


def guards() -> dict[Place, Guard]:
    """Every guard, by its function and its number there."""
    return _instrumented()[0]


@contextmanager
def weighed(reach: Reach) -> Iterator[None]:
    """Within the block, every guard is weighed."""
    codes = _instrumented()[1].values()
    setattr(builtins, NAME, reach.weigh)
    for function, code, _ in codes:
        function.__code__ = code
    try:
        yield
    finally:
        for function, _, before in codes:
            function.__code__ = before
        delattr(builtins, NAME)


def reviewed(path: Path = UNDECIDED) -> dict[str, str]:
    """The changes that cannot decide, with reasons: one name in a line, two spaces, and the reason.
    Raises CallerError for a line without a reason."""
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("# "):
            continue
        name, _, reason = line.partition("  ")
        if not reason.strip():
            raise CallerError(
                f"{path.name}:{number}: expected a name, two spaces and a reason, "
                f"found {line!r}; say why nothing can tell it from the original"
            )
        found[name] = reason.strip()
    return found
