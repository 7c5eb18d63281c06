"""Writes what a peer calls as a script of its engine's own calls, which needs nothing of ours.

A peer makes its engine's objects with `Recorder.make`. Where no script is wanted, that returns them
unchanged and costs nothing. Otherwise it returns a stand-in: whatever is called, read or set
through it is done on the real object, and written as a line. Test doubles, and the laws that judge
the end, are copied into the script: only the definitions that it uses.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import signal
import textwrap
import traceback
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_PLAIN = (int, float, str, bytes, bool, type(None), complex)
_RAW = (*_PLAIN, np.ndarray, np.generic, array, enum.Enum, range)
_OURS = "invariants."
MOST_RUNS = 600
RUN_S = 5.0  # for one run, which takes milliseconds


class Recorder:
    """on: whether calls are written down."""

    def __init__(self, on: bool = False) -> None:
        self.on = on
        self.lines: list[str] = []
        self.imports: dict[str, str] = {}  # by name, the module that has it
        self.used: set[str] = set()  # names of definitions to copy
        self.gaps: list[str] = []  # values that cannot be written
        self._judged = -1  # index of the last line that judges
        self._names: dict[int, tuple[str, Any]] = {}
        self._taken: Counter[str] = Counter()

    def wrap(self, name: str, value: Any) -> Any:
        """Returns `value`, or its stand-in under this name. The script must already define the
        name: use it for what `note` writes."""
        return self._stand_in(name, value) if self.on else value

    def make(self, name: str, kind: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a class or function of the engine or of the doubles, and keeps the result under
        this name."""
        if not self.on:
            return kind(*args, **named)
        expression = f"{self.reference(kind)}({self._arguments(args, named)})"
        return self._run(lambda: kind(*_raw(args), **_raw(named)), expression, name)

    def pure(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of the doubles that changes nothing. Its call is part of the line that
        uses the result."""
        if not self.on:
            return function(*args)
        value = function(*_raw(args))
        return StandIn(self, f"{self.reference(function)}({self._arguments(args, {})})", value)

    def check(self, function: Callable[..., None], *args: Any) -> None:
        """Calls a function that raises if a law is broken. Only the last of several such lines
        stays, since the others held."""
        if not self.on:
            function(*args)
            return
        line = f"{self.reference(function)}({self._arguments(args, {})})"
        if self._judged >= 0:
            del self.lines[self._judged]
        self.lines.append(line)
        self._judged = len(self.lines) - 1
        function(*_raw(args))

    def note(self, text: str) -> None:
        """Writes a line as it is."""
        if self.on:
            self._write(text)

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

    def _write(self, line: str) -> None:
        self.lines.append(line)

    def _run(self, call: Callable[[], Any], expression: str, name: str = "") -> Any:
        at = len(self.lines)
        self._write(expression)
        value = call()
        if isinstance(value, _RAW) or _is_tensor(value):
            if not isinstance(value, type(None)) and len(repr(value)) < 60:
                self.lines[at] = f"{expression}  # {value!r}".replace("\n", " ")
            if name:
                self.lines[at] = f"{name} = {expression}"
                self._names[id(value)] = name, value
            return value
        name = self._fresh(name or _name_for(value))
        self.lines[at] = f"{name} = {expression}"
        return self._stand_in(name, value)

    def _fresh(self, name: str) -> str:
        self._taken[name] += 1
        return name if self._taken[name] == 1 else f"{name}{self._taken[name]}"

    def _stand_in(self, expression: str, value: Any) -> Any:
        if isinstance(value, _RAW) or _is_tensor(value):
            return value
        known = self._names.get(id(value))
        if known is None:
            self._names[id(value)] = known = expression, value
        return StandIn(self, known[0], value)

    def _arguments(self, args: Sequence[Any], named: dict[str, Any]) -> str:
        said = [self.spell(one) for one in args]
        return ", ".join([*said, *(f"{key}={self.spell(one)}" for key, one in named.items())])

    def spell(self, value: Any) -> str:
        """How a value is written."""
        if isinstance(value, StandIn):
            return str(object.__getattribute__(value, "_expression"))
        if isinstance(value, enum.Enum):
            return f"{self.reference(type(value))}.{value.name}"
        if isinstance(value, np.generic):
            return repr(value.item())
        if isinstance(value, _PLAIN) or value is ...:
            return repr(value)
        known = self._names.get(id(value))
        if known is not None:
            return known[0]
        if _is_tensor(value):
            self.imports["torch"] = ""
            return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
        if isinstance(value, np.ndarray):
            self.imports["np"] = "numpy"
            return f"np.array({value.tolist()}, np.{value.dtype})"
        if isinstance(value, array):
            self.imports["array"] = "array"
            return f"array({value.typecode!r}, {value.tolist()})"
        return self._spell_many(value)

    def _spell_many(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = (f"{self.spell(key)}: {self.spell(one)}" for key, one in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = zip(value._fields, value, strict=True)
            said = ", ".join(f"{key}={self.spell(one)}" for key, one in fields)
            return f"{self.reference(type(value))}({said})"
        if isinstance(value, (list, tuple, set, frozenset)):
            inner = ", ".join(map(self.spell, value))
            if isinstance(value, list):
                return f"[{inner}]"
            if isinstance(value, tuple):
                return f"({inner}{',' * (len(value) == 1)})"
            return f"{type(value).__name__}(({inner}{',' * (len(value) == 1)}))"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields_of = (one for one in dataclasses.fields(value) if one.init)
            said = ", ".join(
                f"{one.name}={self.spell(getattr(value, one.name))}" for one in fields_of
            )
            return f"{self.reference(type(value))}({said})"
        if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            return self.reference(value)
        self.gaps.append(type(value).__name__)
        return f"<{type(value).__name__}>"

    # -- the script

    def script(self, head: str, sources: Iterable[Path]) -> str:
        """The whole script. head: its docstring. sources: files from which definitions are copied,
        for each name the first that has it."""
        body = "\n".join(self.lines) or "pass"
        copied, needed = _copied(self.used, sources)
        names = {one.id for one in ast.walk(ast.parse(body)) if isinstance(one, ast.Name)}
        own = {name: module for name, module in self.imports.items() if name in names}
        lines = sorted({*needed, *(_import(name, module) for name, module in own.items())})
        future = "from __future__ import annotations"
        parts = [
            '"""' + head.replace('"""', "'''").replace("\\", "/") + '\n"""',
            "\n".join([future, "", *(one for one in lines if one != future)]),
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
        recorder._write(f"{expression}.{name} = {recorder.spell(new)}")
        setattr(value, name, _raw(new))

    def __getitem__(self, key: Any) -> Any:
        recorder, expression, value = _parts(self)
        return recorder._stand_in(f"{expression}[{recorder.spell(key)}]", value[_raw(key)])

    def __setitem__(self, key: Any, new: Any) -> None:
        recorder, expression, value = _parts(self)
        recorder._write(f"{expression}[{recorder.spell(key)}] = {recorder.spell(new)}")
        value[_raw(key)] = _raw(new)

    def __call__(self, *args: Any, **named: Any) -> Any:
        recorder, expression, value = _parts(self)
        said = f"{expression}({recorder._arguments(args, named)})"
        return recorder._run(lambda: value(*_raw(args), **_raw(named)), said)

    def __iter__(self) -> Iterator[Any]:
        recorder, expression, value = _parts(self)
        for at, one in enumerate(value):
            yield recorder._stand_in(f"{expression}[{at}]", one)

    def __len__(self) -> int:
        return len(_parts(self)[2])

    def __bool__(self) -> bool:
        return bool(_parts(self)[2])

    def __eq__(self, other: object) -> bool:
        return bool(_parts(self)[2] == _raw(other))

    def __hash__(self) -> int:
        return hash(_parts(self)[2])

    def __contains__(self, one: Any) -> bool:
        return _raw(one) in _parts(self)[2]


def _parts(one: StandIn) -> tuple[Recorder, str, Any]:
    get = object.__getattribute__
    return get(one, "_recorder"), get(one, "_expression"), get(one, "_value")


def raw(value: Any) -> Any:
    """The real object behind a stand-in, or the value itself."""
    return _raw(value)


def _raw(value: Any) -> Any:
    if isinstance(value, StandIn):
        return _parts(value)[2]
    if type(value) in (list, tuple):
        return type(value)(map(_raw, value))
    if type(value) is dict:
        return {key: _raw(one) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(_raw, value))
    return value


def _is_tensor(value: Any) -> bool:
    return type(value).__module__ == "torch" and hasattr(value, "tolist")


def _name_for(value: Any) -> str:
    letters = "".join(
        f"_{one.lower()}" if one.isupper() and at else one.lower()
        for at, one in enumerate(type(value).__name__.lstrip("_"))
    )
    return letters if letters.isidentifier() and letters not in ("list", "tuple", "dict") else "got"


def _import(name: str, module: str) -> str:
    if not module:
        return f"import {name}"
    return (
        "import numpy as np"
        if (name, module) == ("np", "numpy")
        else f"from {module} import {name}"
    )


# -- copying definitions


def _copied(names: set[str], sources: Iterable[Path]) -> tuple[list[str], set[str]]:
    """The definitions of these names and of all that they use, in the order of the files; and the
    imports that they need."""
    known: dict[str, ast.stmt] = {}
    imports: dict[str, str] = {}
    for source in sources:
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            for name in _defines(node):
                known.setdefault(name, node)
            _note_imports(node, imports)
    wanted, needed, left = set[str](), set[str](), sorted(names)
    while left:
        name = left.pop()
        if name in wanted:
            continue
        wanted.add(name)
        if name in known:
            _plain(known[name])
            left += sorted(_uses(known[name]))
        elif name in imports:
            needed.add(imports[name])
    nodes = {id(node): node for name, node in known.items() if name in wanted}
    return [ast.unparse(node) for node in nodes.values()], needed


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    flat = [one for target in targets for one in ast.walk(target)]
    return [one.id for one in flat if isinstance(one, ast.Name)]


def _note_imports(node: ast.stmt, imports: dict[str, str]) -> None:
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        for one in node.names:
            if not str(node.module).startswith(_OURS.rstrip(".")):
                said = one.name if one.asname is None else f"{one.name} as {one.asname}"
                imports.setdefault(one.asname or one.name, f"from {node.module} import {said}")
    elif isinstance(node, ast.Import):
        for one in node.names:
            said = one.name if one.asname is None else f"{one.name} as {one.asname}"
            imports.setdefault((one.asname or one.name).partition(".")[0], f"import {said}")


def _plain(node: ast.stmt) -> None:
    """Removes the annotations of functions, so that what only they name is not copied."""
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef):
            one.returns = None
            every = (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)
            for argument in (*every, one.args.vararg, one.args.kwarg):
                if argument is not None:
                    argument.annotation = None
        body = getattr(one, "body", None)
        if isinstance(one, ast.ClassDef):
            for statement in one.body:
                if isinstance(statement, ast.AnnAssign):
                    statement.annotation = ast.Name("object", ast.Load())
        elif isinstance(body, list):
            one.body = [_bare(statement) for statement in body]  # type: ignore[attr-defined]


def _bare(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return ast.copy_location(
            ast.fix_missing_locations(ast.Assign([statement.target], statement.value)), statement
        )
    return statement


def _uses(node: ast.stmt) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return {name for name in names if not hasattr(builtins, name)}


# -- fewer lines


def shorten(recorder: Recorder, sources: Sequence[Path], where: Callable[[str], str]) -> None:
    """Removes lines of the recorder, from the last, as long as the script fails in the same way.
    where: as of Player."""
    head, _, _ = recorder.script("", sources).rpartition("\n\ndef test()")
    space: dict[str, object] = {"__name__": "script"}
    exec(compile(head, "<script>", "exec"), space)
    runs = 0

    def failure(lines: Sequence[str]) -> str:
        nonlocal runs
        runs += 1
        body = textwrap.indent("\n".join(lines) or "pass", "    ")
        scope = dict(space)
        signal.setitimer(signal.ITIMER_REAL, RUN_S)
        try:
            exec(compile(f"def test():\n{body}\ntest()\n", "<script>", "exec"), scope)
        except _Late:
            return ""
        except Exception as error:
            return _kind(error, where)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return ""

    before = signal.signal(signal.SIGALRM, _late)
    lines = list(recorder.lines)
    wanted = failure(lines)
    size = len(lines) // 2 if wanted else 0
    while size:
        end = len(lines)
        while end > 0 and runs < MOST_RUNS:
            start = max(0, end - size)
            fewer = lines[:start] + lines[end:]
            if failure(fewer) == wanted:
                lines = fewer
            end = start
        size //= 2
    signal.signal(signal.SIGALRM, before)
    recorder.lines = lines


class _Late(BaseException):
    """Without some line, the script does not end."""


def _late(number: int, frame: object) -> None:
    raise _Late


def _kind(error: Exception, where: Callable[[str], str]) -> str:
    """Equal for scripts that fail alike: a law, or an error with the engine's line of it."""
    law = getattr(error, "kind", None)
    if isinstance(error, AssertionError) and law:
        return f"law {law}"
    frames = traceback.walk_tb(error.__traceback__)
    engine = [
        (frame.f_code.co_name, line) for frame, line in frames if where(frame.f_code.co_filename)
    ]
    return f"{type(error).__name__} {engine[-1]}" if engine else ""
