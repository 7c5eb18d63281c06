"""Generic source mutants: one small change at one place of one function, of `hicache.core` if
nothing else is named.

Lives here: the list of mutants, their names, and applying one. Does not define the changes of a
node (see changes) or hunt mutants (see score), and knows nothing about the code.

A mutant's name is module:function:kind:statement, with #2, #3, ... for repetitions. Editing other
code keeps the name; editing the statement changes it. A mutant is applied by replacing the
function's code object, so it runs wherever the function is used, under any name.
"""

from __future__ import annotations

import ast
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hicache.core.errors import CallerError

from .changes import changes, sites
from .steps import Steps, counting, limited

PACKAGE = "hicache.core"
CORE = (PACKAGE,)
LONGEST = 64

Place = tuple[str, int]  # a function's qualified name and first line


@dataclass(frozen=True)
class Mutant:
    """place: the changed function. site, choice: numbers of the node and of its change. lines:
    first and last source line that must run for the change to matter.
    """

    name: str
    module: str
    place: Place
    site: int
    choice: int
    lines: tuple[int, int]


_EXTRA = {"sim.times.aiconfigurator"}  # cannot be imported without an extra


def mutants(places: tuple[str, ...] = CORE) -> list[Mutant]:
    """All mutants of these packages and modules, by module and line."""
    return [one for module in modules(places) for one in _of_module(module)]


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


def find(name: str) -> Mutant:
    """Returns the mutant of that name. Raises CallerError if there is none."""
    found = [one for one in mutants() if one.name == name]
    if not found:
        raise CallerError(f"mutant: expected the name of one, found {name!r}; list them (--list)")
    return found[0]


@contextmanager
def applied(mutant: Mutant, counted: bool = False) -> Iterator[None]:
    """Applies a mutant within the block. counted: count the steps of its loops."""
    function = functions(mutant.module)[mutant.place]
    before = function.__code__
    function.__code__ = code_of(mutant, counted)
    try:
        yield
    finally:
        function.__code__ = before


@contextmanager
def counted(places: tuple[str, ...] = CORE) -> Iterator[None]:
    """Counts the steps of all loops of these places within the block (see steps)."""
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


def code_of(mutant: Mutant, counted: bool = False) -> CodeType:
    """Returns the compiled code of the changed function."""
    function = deepcopy(defined(source(mutant.module))[mutant.place])
    node, _ = list(sites(function))[mutant.site]
    _, made = changes(node)[mutant.choice]
    _Exchange(node, made).visit(function)
    return compiled(mutant.module, mutant.place, function, counted)


def compiled(module: str, place: Place, function: ast.FunctionDef, counted: bool) -> CodeType:
    """Compiles a function within the classes of its qualified name. counted: its loops count their
    steps; this changes the function in place.
    """
    name, line = place
    node: ast.stmt = counting(function) if counted else function
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


def _of_module(module: str) -> Iterator[Mutant]:
    known = functions(module)
    seen: Counter[str] = Counter()
    for place, function in defined(source(module)).items():
        if place not in known:
            continue
        for site, (node, statement) in enumerate(sites(function)):
            for choice, (kind, _) in enumerate(changes(node)):
                name = f"{short(module)}:{place[0]}:{kind}:{_snippet(statement)}"
                seen[name] += 1
                again = f"#{seen[name]}" if seen[name] > 1 else ""
                yield Mutant(name + again, module, place, site, choice, _lines(node, kind))


def _snippet(statement: ast.stmt) -> str:
    """Returns a statement's text without its body; long text is cut and gets a digest."""
    text = " ".join(ast.unparse(_head(statement)).split())
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 9].rstrip()}~{blake2b(text.encode(), digest_size=4).hexdigest()}"


def _head(statement: ast.stmt) -> ast.AST:
    body: list[ast.stmt] = []
    if isinstance(statement, ast.If):
        return ast.If(statement.test, body, [])
    if isinstance(statement, ast.While):
        return ast.While(statement.test, body, [])
    if isinstance(statement, ast.For):
        return ast.fix_missing_locations(ast.For(statement.target, statement.iter, body, []))
    if isinstance(statement, ast.Try):
        return ast.Try(body, [], [], [])
    return statement


def _lines(node: ast.AST, kind: str) -> tuple[int, int]:
    """Returns the lines that must run for the change to matter; for removed code, those of the
    code.
    """
    if kind in ("never", "skipped-loop") and isinstance(node, ast.If | ast.For | ast.While):
        return node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
    first: int = getattr(node, "lineno", 0)
    last: int = getattr(node, "end_lineno", None) or first
    if isinstance(node, ast.If | ast.While):
        last = node.test.end_lineno or first
    elif isinstance(node, ast.For):
        last = node.iter.end_lineno or first
    return first, last


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


class _Exchange(ast.NodeTransformer):
    """Replaces one node by another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)
