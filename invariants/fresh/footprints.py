"""What the functions of the project read and write, with all that they call.

An edit that moves a statement over another one that neither reads nor writes the same does nothing,
so it is not drawn. An entry is an attribute (`.pages`), which stands for the attribute of that name
of any object; ANYTHING stands for what is not known. Does not judge a pair of statements (see
syntax).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ..mutants import sources
from .functions import RUNTIME

ANYTHING = ".*"
_GIVEN = ".given"  # a function changes what an argument holds
_BUILTINS = {
    *("abs", "all", "any", "bool", "chain", "deque", "dict", "enumerate", "frozenset", "int"),
    *("isinstance", "iter", "len", "list", "map", "max", "min", "next", "range", "repr"),
    *("reversed", "set", "slice", "sorted", "str", "sum", "tuple", "type", "zip"),
}
_METHODS = {
    *("all", "any", "argmax", "copy", "count", "decode", "digest", "encode", "fromkeys", "get"),
    *("index", "intersection", "items", "join", "keys", "lower", "min", "nonzero", "startswith"),
    *("sum", "tobytes", "tolist", "values"),
}
_LIBRARIES = {"np", "hashlib"}  # only functions without an effect are used
_IN_PLACE = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popleft", "remove"),
    *("reverse", "setdefault", "sort", "update"),
}
_HEAPS = {"heapify", "heappop", "heappush"}


@dataclass(frozen=True)
class Footprint:
    """What a function or a piece of code reads and writes."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def footprints() -> Mapping[str, Footprint]:
    """The functions of the core and the runtime by name; methods with a dot before the name, all of
    one name together.
    """
    known = [(name, _Body(one)) for name, one in _defined()]
    found = {name: Footprint() for name, _ in known}
    while True:
        before = dict(found)
        for name, body in known:
            old, more = found[name], body.footprint(found)
            found[name] = Footprint(old.reads | more.reads, old.writes | more.writes)
        if found == before:
            return found


def _defined() -> Iterator[tuple[str, ast.FunctionDef]]:
    for module in (*sources.modules(), *RUNTIME):
        for (name, _), one in sources.defined(sources.source(module)).items():
            yield (f".{one.name}" if "." in name else name), one


class _Body:
    """A function, read once: what it touches itself, its calls, and the attributes that it reads,
    which may be properties.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        nodes = list(ast.walk(function))
        self._calls = [node for node in nodes if isinstance(node, ast.Call)]
        self._attributes = {f".{one.attr}" for one in nodes if isinstance(one, ast.Attribute)}
        own = [touched(node, {}) for node in nodes if not isinstance(node, ast.Call)]
        self._reads = frozenset(entry for one in own for entry in one.reads)
        self._writes = frozenset(entry for one in own for entry in one.writes)
        self._meant = _meant(function)

    def footprint(self, found: Mapping[str, Footprint]) -> Footprint:
        called = [_called(one, found) for one in self._calls]
        called += [found[name] for name in self._attributes if name in found]
        reads = self._reads.union(*(one.reads for one in called))
        writes = self._writes.union(*(one.writes for one in called))
        inside = {entry for name in writes if name[0] != "." for entry in self._meant.get(name, ())}
        inside |= {entry for entry in writes if entry[0] == "."}
        return Footprint(frozenset(one for one in reads if one[0] == "."), frozenset(inside))


def _meant(function: ast.FunctionDef) -> dict[str, set[str]]:
    """What changes with the object that a local name holds: attributes, or what was given."""
    meant = {one.arg: {_GIVEN} for one in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.For):
            value = node.value if isinstance(node, ast.Assign) else node.iter
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            held = {f".{one.attr}" for one in ast.walk(value) if isinstance(one, ast.Attribute)}
            for target in targets:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name):
                        meant.setdefault(one.id, set()).update(held)
    return meant


def touched(node: ast.AST, found: Mapping[str, Footprint]) -> Footprint:
    """What one node of the syntax tree reads and writes, apart from the nodes below it. Containers
    that a name holds are entries without a dot.
    """
    if isinstance(node, ast.Attribute):
        name = f".{node.attr}"
        if not isinstance(node.ctx, ast.Load):
            return Footprint(writes=frozenset({name}))
        return Footprint(found.get(name, Footprint()).reads | {name})  # it may be a property
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return Footprint(writes=frozenset({_container(node)}))
    if isinstance(node, ast.AugAssign):
        return Footprint(frozenset({_container(node.target)}))
    return _called(node, found) if isinstance(node, ast.Call) else Footprint()


def _called(call: ast.Call, found: Mapping[str, Footprint]) -> Footprint:
    called = call.func
    if isinstance(called, ast.Name):
        if called.id in _HEAPS:
            return Footprint(writes=frozenset({_container(call.args[0])}))
        if called.id in _BUILTINS or called.id[:1].isupper():
            return Footprint()
        known = found.get(called.id)
    elif isinstance(called, ast.Attribute):
        if isinstance(called.value, ast.Name) and called.value.id in _LIBRARIES:
            return Footprint()
        if called.attr in _IN_PLACE:
            return Footprint(writes=frozenset({_container(called.value)}))
        known = Footprint() if called.attr in _METHODS else found.get(f".{called.attr}")
    else:
        known = None
    if known is None:
        return Footprint(writes=frozenset({ANYTHING}))
    if _GIVEN not in known.writes:
        return known
    given = {_container(one) for one in call.args}
    return Footprint(known.reads, (known.writes - {_GIVEN}) | given)


def _container(node: ast.expr) -> str:
    """What a change of `a.b[c][d]` changes: `.b`; of `a[c]`: `a`."""
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    return f".{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)
