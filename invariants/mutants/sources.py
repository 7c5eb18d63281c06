"""The functions of a package, of `hicache.core` if nothing else is named: in the source and in use,
compiled anew in the place of the old ones, and which of their nodes may be edited.

The work of new code is limited in steps, so that endless loops are found by counting, the same on
any machine. A step is one iteration of a loop in the core, or one event. Does not use clocks.
"""

from __future__ import annotations

import ast
import builtins
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

PACKAGE = "hicache.core"
CORE = (PACKAGE,)
LONGEST = 64

Place = tuple[str, int]  # a function's qualified name and first line


_EXTRA = {"sim.times.aiconfigurator"}  # cannot be imported without an extra


@lru_cache(maxsize=8)
def modules(places: tuple[str, ...] = CORE) -> tuple[str, ...]:
    """Names of the modules in these packages, and of these modules."""
    names = []
    for place in places:
        inner = getattr(import_module(place), "__path__", None)
        found = pkgutil.walk_packages(inner, f"{place}.") if inner is not None else ()
        names += [one.name for one in found] if inner is not None else [place]
    return tuple(sorted({*names} - _EXTRA))


def short(module: str) -> str:
    """The name of a module in a mutant's name; a module of the core is named within it."""
    return module.removeprefix(f"{PACKAGE}.")


@contextmanager
def counted(places: tuple[str, ...] = CORE) -> Iterator[None]:
    """Counts the steps of all loops of these places within the block."""
    before: list[tuple[FunctionType, CodeType]] = []
    try:
        for module in modules(places):
            known = functions(module)
            for place, node in defined(source(module)).items():
                if place in known and _has_loop(node):
                    before.append((known[place], known[place].__code__))
                    known[place].__code__ = compiled(module, place, deepcopy(node), True)
        with limited(Steps()):
            yield
    finally:
        for function, code in before:
            function.__code__ = code


def compiled(module: str, place: Place, function: ast.FunctionDef, counted: bool) -> CodeType:
    """Compiles a function within the classes of its qualified name. counted: its loops count their
    steps; this changes the function in place.
    """
    name, line = place
    node: ast.stmt = function
    for one in ast.walk(function) if counted else ():
        if isinstance(one, ast.For | ast.While):
            one.body.insert(0, ast.Expr(ast.Call(ast.Name(_STEP, ast.Load()), [], [])))
    for outer in reversed(name.split(".")[:-1]):
        node = ast.copy_location(ast.ClassDef(outer, [], [], [node], []), node)
    whole = ast.fix_missing_locations(ast.Module([node], []))
    file = str(import_module(module).__file__)
    code = compile(whole, file, "exec", dont_inherit=True, flags=_FUTURE)
    return next(
        one for one in _codes(code) if one.co_qualname == name and one.co_firstlineno == line
    )


_FUTURE = annotations.compiler_flag  # as in every file of the core


def _has_loop(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.For | ast.While) for node in ast.walk(function))


@lru_cache(maxsize=256)
def source(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(Path(str(import_module(module).__file__)).read_text(encoding="utf-8"))


# -- functions, in the source and in use


def defined(tree: ast.Module) -> dict[Place, ast.FunctionDef]:
    """Functions of a module and its classes. Nested functions belong to the outer one."""
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


@lru_cache(maxsize=256)
def functions(module: str) -> dict[Place, FunctionType]:
    """The function objects in use, by the place of their definition."""
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


# -- a limit of work

_STEP = "_a_step_of_the_core"
Guard = Callable[[], AbstractContextManager[None]]  # a limit of another kind


class Endless(BaseException):
    """Raised when the limit is exceeded. A BaseException, so that `except Exception` does not catch
    it.
    """


class Steps:
    """The number of steps, and the limit."""

    __slots__ = ("count", "most")

    def __init__(self, most: int = 1 << 62) -> None:
        self.count = 0
        self.most = most

    def __call__(self) -> None:
        self.count += 1
        if self.count > self.most:
            raise Endless(f"more than {self.most} steps")


@contextmanager
def limited(steps: Steps) -> Iterator[Steps]:
    """Counts into `steps` within the block."""
    before = vars(builtins).get(_STEP)
    setattr(builtins, _STEP, steps)
    try:
        yield steps
    finally:
        if before is None:
            delattr(builtins, _STEP)
        else:
            setattr(builtins, _STEP, before)


@contextmanager
def unguarded() -> Iterator[None]:
    """A guard without a limit of time."""
    yield


# -- which nodes may be edited: asserts, guards that only raise CoreBug, error messages and default
# values are no decisions

BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_LEFT_ALONE = (ast.Assert, ast.Raise, ast.JoinedStr)
_FIELDS_LEFT_ALONE = ("annotation", "returns", "args", "decorator_list")


def sites(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """Yields the nodes of a function that may be changed, in source order, each with its
    statement.
    """
    for statement in function.body:
        yield from _below(statement, statement)


def _below(node: ast.AST, within: ast.stmt) -> Iterator[tuple[ast.AST, ast.stmt]]:
    if isinstance(node, _LEFT_ALONE) or is_guard(node):
        return
    within = node if isinstance(node, ast.stmt) else within
    yield node, within
    for field, held in ast.iter_fields(node):
        if field not in _FIELDS_LEFT_ALONE or isinstance(node, ast.Call):
            for one in held if isinstance(held, list) else [held]:
                if isinstance(one, ast.AST):
                    yield from _below(one, within)


def is_guard(node: ast.AST) -> bool:
    """Whether a node is `if ...: raise CoreBug(...)`, which is like an assert."""
    if not (isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse):
        return False
    first = node.body[0]
    raised = first.exc if isinstance(first, ast.Raise) else None
    name = raised.func if isinstance(raised, ast.Call) else None
    return isinstance(name, ast.Name) and name.id == "CoreBug"
