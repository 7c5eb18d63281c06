"""Source lines and functions of the core: those that are running, and those that are called.

Lives here: naming a line, the lines that run now, and reporting calls of functions. Does not change
any values at these lines (see explain/instruments).
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HICACHE = ROOT / "hicache"
PLANTED = ROOT / "invariants" / "planted"
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
    """Returns the first line of a function of hicache or of a planted bug, else None."""
    code = getattr(function, "__code__", None)
    return _source_line(code, code.co_firstlineno) if code is not None else None


def _source_line(code: Any, line: int) -> SourceLine | None:
    file = _file(code.co_filename)
    return SourceLine(file, line, code.co_name) if file else None


@cache
def _file(name: str) -> str:
    """Path relative to the project's root for hicache and planted bugs, else ""."""
    path = Path(name).resolve()
    if path.parent != PLANTED and HICACHE not in path.parents:
        return ""
    return path.relative_to(ROOT).as_posix()


def running_lines() -> tuple[SourceLine, ...]:
    """Returns the running lines of the core, innermost first."""
    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        source_line = _source_line(frame.f_code, frame.f_lineno)
        if source_line is not None and source_line.file == DRIVER:
            break
        if source_line is not None:
            found.append(source_line)
        frame = frame.f_back
    return tuple(found)


def raised(error: Exception) -> tuple[SourceLine, ...]:
    """Returns the lines of hicache in the traceback of an error, innermost first."""
    lines = traceback.walk_tb(error.__traceback__)
    found = (_source_line(frame.f_code, line) for frame, line in lines)
    return tuple(
        source_line
        for source_line in found
        if source_line is not None and source_line.file != DRIVER
    )[::-1]


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
