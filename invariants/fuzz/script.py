"""Writes what a target calls as a script of its engine's own calls, which needs nothing of ours.

A target makes its engine's objects with `Recorder.make`. Where no script is wanted, that returns
them unchanged. Otherwise it returns a stand-in: whatever is called, read or set through it is done
on the real object, and written as a line. Test doubles, and the laws that judge the end, are copied
into the script: only the definitions that it uses.
"""

from __future__ import annotations

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

_PLAIN = (int, float, str, bytes, bool, type(None), complex)
_RAW = (*_PLAIN, np.ndarray, np.generic, array, enum.Enum, range)
_OURS = "invariants."


class Recorder:
    """on: whether calls are written down."""

    def __init__(self, on: bool = False) -> None:
        self.on = on
        self.lines: list[str] = []
        self.imports: dict[str, str] = {}  # by name, the module that has it
        self.used: set[str] = set()  # names of definitions to copy
        self._judged = -1  # index of the last line that judges
        self._names: dict[int, tuple[str, Any]] = {}
        self._taken: Counter[str] = Counter()

    def wrap(self, name: str, value: Any) -> Any:
        """Returns `value`, or its stand-in under this name, which `note` has defined."""
        return self._stand_in(name, value) if self.on else value

    def make(self, name: str, kind: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a class or function of the engine or of the doubles, and keeps the result under
        this name."""
        if not self.on:
            return kind(*args, **named)
        expression = f"{self.reference(kind)}({self._arguments(args, named)})"
        return self._run(lambda: kind(*raw(args), **raw(named)), expression, name)

    def pure(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of the doubles that changes nothing. Its call is part of the line that
        uses the result."""
        if not self.on:
            return function(*args)
        said = f"{self.reference(function)}({self._arguments(args, {})})"
        return StandIn(self, said, function(*raw(args)))

    def check(self, function: Callable[..., None], *args: Any) -> None:
        """Calls a function that raises if a law is broken. Only the last of several such lines
        stays, since the others held."""
        if self.on:
            if self._judged >= 0:
                del self.lines[self._judged]
            self._judged = len(self.lines)
            self.lines.append(f"{self.reference(function)}({self._arguments(args, {})})")
        function(*raw(args))

    def note(self, text: str) -> None:
        """Writes a line as it is."""
        if self.on:
            self.lines.append(text)

    # -- writing

    def reference(self, kind: Any) -> str:
        """The name of a class or function, which the script imports or copies."""
        name: str = kind.__qualname__
        top = name.partition(".")[0]
        if kind.__module__.startswith(_OURS):
            self.used.add(top)
        elif kind.__module__ != "builtins":
            self.imports[top] = kind.__module__
        return name

    def _run(self, call: Callable[[], Any], expression: str, name: str = "") -> Any:
        at = len(self.lines)
        self.lines.append(expression)
        value = call()
        if _is_raw(value):
            if name:
                self.lines[at] = f"{name} = {expression}"
                self._names[id(value)] = name, value
            elif value is not None and len(repr(value)) < 60:
                self.lines[at] = f"{expression}  # {value!r}".replace("\n", " ")
            return value
        name = name or _name_for(value)
        self._taken[name] += 1
        name += str(self._taken[name]) if self._taken[name] > 1 else ""
        self.lines[at] = f"{name} = {expression}"
        return self._stand_in(name, value)

    def _stand_in(self, expression: str, value: Any) -> Any:
        if _is_raw(value):
            return value
        known, _ = self._names.setdefault(id(value), (expression, value))
        return StandIn(self, known, value)

    def _arguments(self, args: Iterable[Any], named: dict[str, Any]) -> str:
        said = [*map(self.spell, args), *(f"{key}={self.spell(named[key])}" for key in named)]
        return ", ".join(said)

    def spell(self, value: Any) -> str:
        """How a value is written."""
        kind = type(value)
        if kind is StandIn:
            return str(object.__getattribute__(value, "_expression"))
        if isinstance(value, enum.Enum):
            return f"{self.reference(kind)}.{value.name}"
        if isinstance(value, np.generic):
            return repr(value.item())
        if isinstance(value, _PLAIN) or value is ...:
            return repr(value)
        if id(value) in self._names:
            return self._names[id(value)][0]
        if _is_tensor(value):
            self.imports["torch"] = ""
            return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
        if isinstance(value, np.ndarray):
            self.imports["np"] = "numpy"
            return f"np.array({value.tolist()}, np.{value.dtype})"
        if isinstance(value, array):
            self.imports["array"] = "array"
            return f"array({value.typecode!r}, {value.tolist()})"
        if isinstance(value, dict):
            pairs = (f"{self.spell(key)}: {self.spell(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        fields: Any = getattr(value, "_fields", None)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [each.name for each in dataclasses.fields(value) if each.init]
        if fields is not None:
            named = {name: getattr(value, name) for name in fields}
            return f"{self.reference(kind)}({self._arguments((), named)})"
        if isinstance(value, list):
            return f"[{self._arguments(value, {})}]"
        if isinstance(value, (tuple, set, frozenset)):
            inner = f"({self._arguments(value, {})}{',' * (len(value) == 1)})"
            return inner if isinstance(value, tuple) else f"{kind.__name__}({inner})"
        return self.reference(value) if hasattr(value, "__qualname__") else f"<{kind.__name__}>"

    def script(self, head: str, sources: Iterable[Path]) -> str:
        """The whole script. head: its docstring. sources: files from which definitions are copied,
        for each name the first that has it."""
        body = "\n".join(self.lines) or "pass"
        copied, needed = _copied(self.used, sources)
        names = {each.id for each in ast.walk(ast.parse(body)) if isinstance(each, ast.Name)}
        own = {_import(name, of) for name, of in self.imports.items() if name in names}
        parts = [
            '"""' + head.replace('"""', "'''").replace("\\", "/") + '\n"""',
            "\n".join(["from __future__ import annotations", "", *sorted(own | needed)]),
            *copied,
            "def test() -> None:\n" + textwrap.indent(body, "    "),
            'if __name__ == "__main__":\n    test()',
        ]
        return "\n\n\n".join(parts) + "\n"


class StandIn:
    """Stands in for an object of the engine: does everything on the real one, and writes it."""

    __slots__ = ("_expression", "_recorder", "_value")

    def __init__(self, recorder: Recorder, expression: str, value: Any) -> None:
        object.__setattr__(self, "_recorder", recorder)
        object.__setattr__(self, "_expression", expression)
        object.__setattr__(self, "_value", value)

    def __getattr__(self, name: str) -> Any:
        recorder, expression, value = _parts(self)
        return recorder._stand_in(f"{expression}.{name}", getattr(value, name))

    def __setattr__(self, name: str, new: Any) -> None:
        recorder, expression, value = _parts(self)
        recorder.note(f"{expression}.{name} = {recorder.spell(new)}")
        setattr(value, name, raw(new))

    def __getitem__(self, key: Any) -> Any:
        recorder, expression, value = _parts(self)
        return recorder._stand_in(f"{expression}[{recorder.spell(key)}]", value[raw(key)])

    def __setitem__(self, key: Any, new: Any) -> None:
        recorder, expression, value = _parts(self)
        recorder.note(f"{expression}[{recorder.spell(key)}] = {recorder.spell(new)}")
        value[raw(key)] = raw(new)

    def __call__(self, *args: Any, **named: Any) -> Any:
        recorder, expression, value = _parts(self)
        said = f"{expression}({recorder._arguments(args, named)})"
        return recorder._run(lambda: value(*raw(args), **raw(named)), said)

    def __iter__(self) -> Iterator[Any]:
        recorder, expression, value = _parts(self)
        for at, each in enumerate(value):
            yield recorder._stand_in(f"{expression}[{at}]", each)

    def __len__(self) -> int:
        return len(raw(self))

    def __bool__(self) -> bool:
        return bool(raw(self))

    def __eq__(self, other: object) -> bool:
        return bool(raw(self) == raw(other))

    def __hash__(self) -> int:
        return hash(raw(self))

    def __contains__(self, each: Any) -> bool:
        return raw(each) in raw(self)


def _parts(stand_in: StandIn) -> tuple[Recorder, str, Any]:
    get = object.__getattribute__
    return get(stand_in, "_recorder"), get(stand_in, "_expression"), get(stand_in, "_value")


def raw(value: Any) -> Any:
    """The real object behind a stand-in, or the value itself; of a collection, those within."""
    if type(value) is StandIn:
        return _parts(value)[2]
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


def _import(name: str, module: str) -> str:
    if module:
        return "import numpy as np" if name == "np" else f"from {module} import {name}"
    return f"import {name}"


# -- copying definitions


def _copied(names: Iterable[str], sources: Iterable[Path]) -> tuple[list[str], set[str]]:
    """The definitions of these names and of all that they use, in the order of the files; and the
    imports that they need."""
    known: dict[str, ast.stmt] = {}
    imports: dict[str, str] = {}
    for source in sources:
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports = _imported(node) | imports
            else:
                known |= {name: node for name in _defined(node) if name not in known}
    wanted, needed, left = set[str](), set[str](), [*names]
    while left:
        name = left.pop()
        if name not in wanted and name in known:
            known[name] = _Bare().visit(known[name])
            left += {each.id for each in ast.walk(known[name]) if isinstance(each, ast.Name)}
        elif name in imports:
            needed.add(imports[name])
        wanted.add(name)
    nodes = {id(node): node for name, node in known.items() if name in wanted}
    return [ast.unparse(node) for node in nodes.values()], needed


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    flat = [each for target in targets for each in ast.walk(target)]
    return [each.id for each in flat if isinstance(each, ast.Name)]


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Statements by the names that they bring; of what is ours, none."""
    module = f"{node.module}" if isinstance(node, ast.ImportFrom) else ""
    if (
        module.startswith(_OURS.rstrip("."))
        or getattr(node, "level", None)
        or module == "__future__"
    ):
        return {}
    head = f"from {module} import" if module else "import"
    names = {each.asname or each.name.partition(".")[0]: ast.unparse(each) for each in node.names}
    return {name: f"{head} {said}" for name, said in names.items()}


class _Bare(ast.NodeTransformer):
    """Removes annotations, so that what only they name is not copied."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.annotation = ast.Name("object", ast.Load())
        return self.generic_visit(node)
