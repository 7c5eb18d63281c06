"""Source lines and functions of the core: those that are running, and those that are called.

Lives here: naming a line and its function, the lines that run now, and reporting calls of
functions. Does not change any values at these lines (see explain/instruments).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HICACHE = ROOT / "hicache"
DRIVER = "hicache/runtime/driver.py"  # the driver stands between the core and its caller


class SourceLine(NamedTuple):
    """One source line: its file relative to the project's root, and its function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


class Call(NamedTuple):
    """A call of a function of the core: the first line of the function, and the depth of the
    call.
    """

    source_line: SourceLine
    depth: int


def line_of(function: Any) -> SourceLine | None:
    """Returns the first line of a function of hicache, else None."""
    code = getattr(function, "__code__", None)
    return line_in(code, code.co_firstlineno) if code is not None else None


def line_in(code: Any, line: int) -> SourceLine | None:
    """Returns a line of a code object of hicache, else None."""
    file = _file(code.co_filename)
    return SourceLine(file, line, code.co_name) if file else None


@cache
def _file(name: str) -> str:
    """Path relative to the project's root for hicache, else ""."""
    path = Path(name).resolve()
    if HICACHE not in path.parents:
        return ""
    return path.relative_to(ROOT).as_posix()


def running_lines() -> tuple[SourceLine, ...]:
    """Returns the running lines of the core, innermost first."""
    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        source_line = line_in(frame.f_code, frame.f_lineno)
        if source_line is not None and source_line.file == DRIVER:
            break
        if source_line is not None:
            found.append(source_line)
        frame = frame.f_back
    return tuple(found)


@contextmanager
def tracing(call: Any) -> Iterator[None]:
    """Within the block, Python calls `call` for each function that begins."""
    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def calls(report: Callable[[Call], None]) -> Iterator[None]:
    """Within the block, reports each call of a function of the core's modules."""
    depth = 0

    def watched(real: Any, source_line: SourceLine) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal depth
            report(Call(source_line, depth))
            depth += 1
            try:
                return real(*args, **named)
            finally:
                depth -= 1

        return call

    with ExitStack() as stack:
        wrapped: dict[Any, Any] = {}
        for space in _spaces():
            for key, held in list(space.items()):
                source_line = line_of(held) if isinstance(held, FunctionType) else None
                if source_line is not None:
                    wrapped.setdefault(held, watched(held, source_line))
                    space[key] = wrapped[held]
                    stack.callback(space.__setitem__, key, held)
        yield


def _spaces() -> Iterator[dict[Any, Any]]:
    """Yields the namespace of each module of the core, and the dicts in it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hicache.core.") and isinstance(module, ModuleType):
            yield vars(module)
            yield from [held for held in vars(module).values() if type(held) is dict]
