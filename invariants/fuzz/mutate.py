"""Generic source mutants of `hicache.core`: one small change of one place in one function.

Lives here: which changes there are, their names, and how one is put in and taken out. Must not live
here: how a mutant is hunted (`score`), or any knowledge of what the core does.

A mutant's name is module:function:line:kind, with #2, #3 ... where a line has several of a kind. It
is put in by exchanging the function's code object, so whoever has bound the function, by whatever
name, runs the mutant. Asserts, guards that only raise CoreBug, messages of errors and default
values are left alone: they are no decisions.
"""

from __future__ import annotations

import ast
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hicache.core.errors import CallerError

PACKAGE = "hicache.core"

Made = tuple[str, ast.AST]
Place = tuple[str, int]  # a function's qualified name and first line

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_LEFT_ALONE = (ast.Assert, ast.Raise, ast.JoinedStr)
_FIELDS_LEFT_ALONE = ("annotation", "returns", "args", "decorator_list")


@dataclass(frozen=True)
class Mutant:
    """place: the function whose code is exchanged. spot, choice: which change of which node."""

    name: str
    module: str
    place: Place
    spot: int
    choice: int


def mutants() -> list[Mutant]:
    """Every mutant there is, by module and line."""
    return [one for module in modules() for one in _of_module(module)]


def modules() -> list[str]:
    """The core's modules, by name."""
    root = import_module(PACKAGE)
    return sorted(one.name for one in pkgutil.walk_packages(root.__path__, f"{PACKAGE}."))


def find(name: str) -> Mutant:
    """The mutant of that name. Raises CallerError where the source has none."""
    found = [one for one in mutants() if one.name == name]
    if not found:
        raise CallerError(f"mutant: expected the name of one, found {name!r}; list them (--list)")
    return found[0]


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The core has this mutant until the block ends."""
    function = _functions(mutant.module)[mutant.place]
    before = function.__code__
    function.__code__ = code_of(mutant)
    try:
        yield
    finally:
        function.__code__ = before


def code_of(mutant: Mutant) -> CodeType:
    """The changed function, compiled."""
    tree = deepcopy(_source(mutant.module))
    function = _defined(tree)[mutant.place]
    node = list(_spots(function))[mutant.spot]
    _, made = _changes(node)[mutant.choice]
    changed = ast.fix_missing_locations(_Exchange(node, made).visit(tree))
    whole = compile(changed, str(import_module(mutant.module).__file__), "exec", dont_inherit=True)
    name, line = mutant.place
    return next(
        code for code in _codes(whole) if code.co_qualname == name and code.co_firstlineno == line
    )


def _of_module(module: str) -> Iterator[Mutant]:
    functions = _functions(module)
    seen: Counter[str] = Counter()
    for place, function in _defined(_source(module)).items():
        if place not in functions:
            continue
        for spot, node in enumerate(_spots(function)):
            for choice, (kind, _) in enumerate(_changes(node)):
                line = getattr(node, "lineno", function.lineno)
                short = module.removeprefix(f"{PACKAGE}.")
                name = f"{short}:{place[0]}:{line}:{kind}"
                seen[name] += 1
                again = f"#{seen[name]}" if seen[name] > 1 else ""
                yield Mutant(name + again, module, place, spot, choice)


@lru_cache(maxsize=64)
def _source(module: str) -> ast.Module:
    return ast.parse(Path(str(import_module(module).__file__)).read_text(encoding="utf-8"))


# -- functions, in the source and in use


def _defined(tree: ast.Module) -> dict[Place, ast.FunctionDef]:
    """Functions of a module and of its classes; those inside functions belong to the outer one."""
    found: dict[Place, ast.FunctionDef] = {}

    def enter(body: Iterable[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found[f"{prefix}{node.name}", first] = node
            elif isinstance(node, ast.ClassDef):
                enter(node.body, f"{prefix}{node.name}.")

    enter(tree.body, "")
    return found


@lru_cache(maxsize=64)
def _functions(module: str) -> dict[Place, FunctionType]:
    """The function objects in use, by where they are defined."""
    return {
        (one.__qualname__, one.__code__.co_firstlineno): one
        for one in _held(import_module(module))
        if one.__module__ == module
    }


def _held(owner: ModuleType | type) -> Iterator[FunctionType]:
    for held in vars(owner).values():
        inner: Any = held
        if isinstance(held, property):
            inner = held.fget
        elif isinstance(held, staticmethod | classmethod):
            inner = held.__func__
        inner = getattr(inner, "__wrapped__", inner)
        if isinstance(inner, FunctionType):
            yield inner
        elif isinstance(inner, type) and inner is not owner and isinstance(owner, ModuleType):
            yield from _held(inner)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


# -- changes


class _Exchange(ast.NodeTransformer):
    """One node for another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def _spots(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function that may be changed, in the order of the source."""
    for statement in function.body:
        yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, _LEFT_ALONE) or _is_guard(node):
        return
    yield node
    for field, held in ast.iter_fields(node):
        if field not in _FIELDS_LEFT_ALONE or isinstance(node, ast.Call):
            for one in held if isinstance(held, list) else [held]:
                if isinstance(one, ast.AST):
                    yield from _below(one)


def _is_guard(node: ast.AST) -> bool:
    """`if ...: raise CoreBug(...)`: an assert in other words."""
    if not (isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse):
        return False
    first = node.body[0]
    raised = first.exc if isinstance(first, ast.Raise) else None
    name = raised.func if isinstance(raised, ast.Call) else None
    return isinstance(name, ast.Name) and name.id == "CoreBug"


def _changes(node: ast.AST) -> list[Made]:
    """What may become of a node: kinds and replacements."""
    change = _CHANGES.get(type(node))
    return change(node) if change is not None else []


def _compare(node: Any) -> list[Made]:
    made: list[Made] = []
    for at, op in enumerate(node.ops):
        new = _COMPARED[type(op)]
        ops = [new() if at == index else one for index, one in enumerate(node.ops)]
        kind = f"compare-{type(op).__name__}-{new.__name__}"
        made.append((kind, ast.Compare(node.left, ops, node.comparators)))
    return made


def _constant(node: Any) -> list[Made]:
    value = node.value
    if type(value) is bool:
        return [("constant-not", ast.Constant(not value))]
    if type(value) is not int:
        return []
    return [("boundary+1", ast.Constant(value + 1)), ("boundary-1", ast.Constant(value - 1))]


def _called(node: Any) -> list[Made]:
    if not (isinstance(node.func, ast.Name) and node.func.id == "len"):
        return []
    return [
        ("boundary+1", ast.BinOp(node, ast.Add(), ast.Constant(1))),
        ("boundary-1", ast.BinOp(node, ast.Sub(), ast.Constant(1))),
    ]


def _computed(node: Any) -> list[Made]:
    new = _COMPUTED.get(type(node.op))
    if new is None:
        return []
    kind = f"arithmetic-{type(node.op).__name__}-{new.__name__}"
    if isinstance(node, ast.AugAssign):
        return [(kind, ast.AugAssign(node.target, new(), node.value))]
    return [(kind, ast.BinOp(node.left, new(), node.right))]


def _statement(node: Any) -> list[Made]:
    return [("deleted-call", ast.Pass())] if isinstance(node.value, ast.Call) else []


def _branch(node: Any) -> list[Made]:
    """Negating a condition swaps the branches; what is left is to take always one of them."""
    always = type(node)(ast.Constant(True), node.body, node.orelse)
    never = type(node)(ast.Constant(False), node.body, node.orelse)
    return [("negated", _negated(node)), ("always", always), ("never", never)]


def _while(node: Any) -> list[Made]:
    return [("skipped-loop", ast.While(ast.Constant(False), node.body, node.orelse))]


def _for(node: Any) -> list[Made]:
    skipped: list[ast.stmt] = [ast.Break()]
    return [("skipped-loop", ast.For(node.target, node.iter, skipped, node.orelse))]


def _negated(node: Any) -> ast.AST:
    return type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)  # type: ignore[no-any-return]


def _both(node: Any) -> list[Made]:
    if isinstance(node.op, ast.And):
        return [("and-or", ast.BoolOp(ast.Or(), node.values))]
    return [("or-and", ast.BoolOp(ast.And(), node.values))]


def _unary(node: Any) -> list[Made]:
    if isinstance(node.op, ast.Not):
        return [("not-dropped", node.operand)]
    return [("minus-dropped", node.operand)] if isinstance(node.op, ast.USub) else []


def _return(node: Any) -> list[Made]:
    held = node.value
    if held is None or (isinstance(held, ast.Constant) and held.value is None):
        return []
    return [("return-none", ast.Return(ast.Constant(None)))]


_CHANGES: dict[type[ast.AST], Callable[[Any], list[Made]]] = {
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Call: _called,
    ast.BinOp: _computed,
    ast.AugAssign: _computed,
    ast.Expr: _statement,
    ast.If: _branch,
    ast.IfExp: _branch,
    ast.While: _while,
    ast.For: _for,
    ast.BoolOp: _both,
    ast.UnaryOp: _unary,
    ast.Return: _return,
}
