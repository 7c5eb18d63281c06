"""Writes what a target calls as a script of its engine's own calls, which needs nothing of ours.

A target makes its engine's objects with `Recorder.make`. Where no script is wanted, that returns
them unchanged. Otherwise it returns a stand-in: whatever is called, read or set through it is done
on the real object, and written as a line. Test doubles, and the laws that judge the end, are copied
into the script: only the definitions that it uses.
"""

import ast
import dataclasses
import enum
import re
import textwrap
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_PLAIN = (int, float, str, bytes, bool, type(None), type(...))
_RAW = (*_PLAIN, np.ndarray, np.generic, array, enum.Enum, range)


class Recorder:
    """on: whether calls are written down."""

    def __init__(self, on: bool = False) -> None:
        self.on = on
        self.lines: list[str] = []
        self.imports: dict[str, str] = {}  # by name, the statement that brings it
        self.used: set[str] = set()  # names of definitions to copy
        self._validated = -1  # index of the last line that judges
        self._names: dict[int, tuple[str, Any]] = {}
        self._taken: Counter[str] = Counter()

    def make(self, name: str, kind: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a class or function of the engine or of the doubles, and keeps the result under
        this name."""
        if not self.on:
            return kind(*args, **named)
        return self.run(f"{self.reference(kind)}", kind, args, named, name)

    def pure(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of the doubles that changes nothing. Its call is part of the line that
        uses the result."""
        if not self.on:
            return function(*args)
        text = f"{self.reference(function)}({self._arguments(args)})"
        return StandIn(self, text, function(*raw(args)))

    def check(self, function: Callable[..., None], *args: Any) -> None:
        """Calls a function that raises if a law is broken. Only the last of several such lines
        stays, since the others held."""
        if self.on:
            if self._validated >= 0:
                del self.lines[self._validated]
            self._validated = len(self.lines)
            self.lines.append(f"{self.reference(function)}({self._arguments(args)})")
        function(*raw(args))

    # -- writing

    def reference(self, kind: Any) -> str:
        """The name of a class or function, which the script imports or copies."""
        name: str = kind.__qualname__
        top = name.partition(".")[0]
        if kind.__module__.startswith("invariants."):
            self.used.add(top)
        elif kind.__module__ != "builtins":
            self.imports[top] = f"from {kind.__module__} import {top}"
        return name

    def run(self, called: str, call: Any, args: Any, named: dict[str, Any], name: str = "") -> Any:
        """Makes a call, and writes it. name: of the result, if it has one already."""
        at, expression = len(self.lines), f"{called}({self._arguments(args, named)})"
        self.lines.append(expression)
        value = call(*raw(args), **raw(named))
        if _is_raw(value):
            if value is not None and len(repr(value)) < 60:
                self.lines[at] = f"{expression}  # {value!r}".replace("\n", " ")
            return value
        name = name or _name_for(value)
        self._taken[name] += 1
        name += str(self._taken[name]) if self._taken[name] > 1 else ""
        self.lines[at] = f"{name} = {expression}"
        return self.stand_in(name, value)

    def stand_in(self, text: str, value: Any) -> Any:
        if _is_raw(value):
            return value
        return StandIn(self, self._names.setdefault(id(value), (text, value))[0], value)

    def _arguments(self, args: Iterable[Any], named: dict[str, Any] | None = None) -> str:
        texts = [f"{key}={self.spell(value)}" for key, value in (named or {}).items()]
        return ", ".join([*map(self.spell, args), *texts])

    def spell(self, value: Any) -> str:
        """How a value is written."""
        kind = type(value)
        if kind is StandIn:
            return str(value._text_)
        if isinstance(value, enum.Enum):
            return f"{self.reference(kind)}.{value.name}"
        if isinstance(value, np.generic):
            return repr(value.item())
        if isinstance(value, _PLAIN):
            return repr(value)
        if id(value) in self._names:
            return self._names[id(value)][0]
        if _is_tensor(value):
            self.imports["torch"] = "import torch"
            return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
        if isinstance(value, array):
            self.imports["array"] = "from array import array"
            return f"array({value.typecode!r}, {value.tolist()})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.spell(x)}: {self.spell(y)}' for x, y in value.items())}}}"
        fields: Any = getattr(value, "_fields", None)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [each.name for each in dataclasses.fields(value) if each.init]
        if fields is not None:
            named = {name: getattr(value, name) for name in fields}
            return f"{self.reference(kind)}({self._arguments((), named)})"
        if isinstance(value, (list, tuple, set, frozenset)):
            inner = self._arguments(value)
            if kind is list:
                return f"[{inner}]"
            if kind is tuple:
                return f"({inner}{',' * (len(value) == 1)})"
            return f"{kind.__name__}([{inner}])"
        return self.reference(value) if hasattr(value, "__qualname__") else f"<{kind.__name__}>"

    def script(self, head: str, sources: Iterable[Path]) -> str:
        """The whole script. head: its docstring. sources: files from which definitions are copied,
        for each name the first that has it."""
        body = "\n".join(self.lines) or "pass"
        copied, needed = _copied(self.used, sources)
        names = {each.id for each in ast.walk(ast.parse(body)) if isinstance(each, ast.Name)}
        needed |= {self.imports[name] for name in names & self.imports.keys()}
        parts = [
            '"""' + head.replace('"""', "'''").replace("\\", "/") + '\n"""',
            "\n".join(["from __future__ import annotations", "", *sorted(needed)]),
            *copied,
            "def test() -> None:\n" + textwrap.indent(body, "    "),
            'if __name__ == "__main__":\n    test()',
        ]
        return "\n\n\n".join(parts) + "\n"


class StandIn:
    """Stands in for an object of the engine: does everything on the real one, and writes it."""

    __slots__ = ("_real_", "_recorder_", "_text_")

    def __init__(self, recorder: Recorder, text: str, real: Any) -> None:
        for name, value in (("_recorder_", recorder), ("_text_", text), ("_real_", real)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return self._recorder_.stand_in(f"{self._text_}.{name}", getattr(self._real_, name))

    def __setattr__(self, name: str, new: Any) -> None:
        self._recorder_.lines.append(f"{self._text_}.{name} = {self._recorder_.spell(new)}")
        setattr(self._real_, name, raw(new))

    def __setitem__(self, key: Any, new: Any) -> None:
        spell = self._recorder_.spell
        self._recorder_.lines.append(f"{self._text_}[{spell(key)}] = {spell(new)}")
        self._real_[raw(key)] = raw(new)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._recorder_.run(self._text_, self._real_, args, named)

    def __iter__(self) -> Iterator[Any]:
        for at, each in enumerate(self._real_):
            yield self._recorder_.stand_in(f"{self._text_}[{at}]", each)

    def __bool__(self) -> bool:
        return bool(self._real_)

    def __eq__(self, other: object) -> bool:
        return bool(self._real_ == raw(other))

    def __hash__(self) -> int:
        return hash(self._real_)


def raw(value: Any) -> Any:
    """The real object behind a stand-in, or the value itself; of a collection, those within."""
    if type(value) is StandIn:
        return value._real_
    if type(value) in (list, tuple):
        return type(value)(map(raw, value))
    if type(value) is dict:
        return {key: raw(each) for key, each in value.items()}
    return value._make(map(raw, value)) if hasattr(type(value), "_make") else value


def _is_raw(value: Any) -> bool:
    return isinstance(value, _RAW) or _is_tensor(value)


def _is_tensor(value: Any) -> bool:
    return type(value).__module__ == "torch" and hasattr(value, "tolist")


def _name_for(value: Any) -> str:
    name = re.sub(r"(?<=.)([A-Z])", r"_\1", type(value).__name__.lstrip("_")).lower()
    return name if name.isidentifier() and name not in ("list", "tuple", "dict") else "got"


# -- copying definitions


def _copied(names: Iterable[str], sources: Iterable[Path]) -> tuple[list[str], set[str]]:
    """The definitions of these names and of all that they use, in the order of the files; and the
    imports that they need, of which none is ours."""
    known: dict[str, ast.stmt] = {}
    imports: dict[str, str] = {}
    for source in sources:
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                where = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                if not where.startswith(("from invariants.", "from __future__ ")):
                    for each in node.names:
                        name = each.asname or each.name.partition(".")[0]
                        imports.setdefault(name, f"{where}import {ast.unparse(each)}")
            else:
                known |= {name: node for name in _defined(node) if name not in known}
    wanted, left = set[str](), [*names]
    while left:
        name = left.pop()
        if name not in wanted and name in known:
            left += [each.id for each in _used(known[name]) if isinstance(each, ast.Name)]
        wanted.add(name)
    nodes = {id(node): node for name, node in known.items() if name in wanted}
    return [*map(ast.unparse, nodes.values())], {imports[x] for x in wanted & imports.keys()}


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    flat = [each for target in targets for each in ast.walk(target)]
    return [each.id for each in flat if isinstance(each, ast.Name)]


def _used(node: ast.AST) -> Iterator[ast.AST]:
    """What a definition has within, but for annotations, which are not evaluated."""
    yield node
    for field, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and field not in ("annotation", "returns"):
                yield from _used(each)
