"""Lines and functions of the core, as they run: which ones an instrument was called from.

Lives here: naming a line, the lines that run now, and watching which functions are called. Must not
live here: what was changed there (instruments).
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
DRIVER = "hicache/runtime/driver.py"  # between the core and whoever feeds it


class Spot(NamedTuple):
    """One line of the code: its file from the project's root, and the function around it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


class Call(NamedTuple):
    """A function of the core was called: where it begins, and how deep."""

    spot: Spot
    depth: int


def spot_of(function: Any) -> Spot | None:
    """Where a function begins, if that is in hicache or in a planted bug."""
    code = getattr(function, "__code__", None)
    return _spot(code, code.co_firstlineno) if code is not None else None


def _spot(code: Any, line: int) -> Spot | None:
    file = _file(code.co_filename)
    return Spot(file, line, code.co_name) if file else None


@cache
def _file(name: str) -> str:
    """From the project's root, where it is part of hicache or a planted bug; else empty."""
    path = Path(name).resolve()
    if path.parent != PLANTED and HICACHE not in path.parents:
        return ""
    return path.relative_to(ROOT).as_posix()


def spots_now() -> tuple[Spot, ...]:
    """The lines of the core that are being run, innermost first."""
    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        spot = _spot(frame.f_code, frame.f_lineno)
        if spot is not None and spot.file == DRIVER:
            break
        if spot is not None:
            found.append(spot)
        frame = frame.f_back
    return tuple(found)


def raised(error: Exception) -> tuple[Spot, ...]:
    """The lines of hicache that an error came through, innermost first."""
    lines = traceback.walk_tb(error.__traceback__)
    found = (_spot(frame.f_code, line) for frame, line in lines)
    return tuple(spot for spot in found if spot is not None and spot.file != DRIVER)[::-1]


@contextmanager
def calls(report: Callable[[Call], None]) -> Iterator[None]:
    """Until the block ends, every function of the core's modules reports that it was called."""
    depth = 0

    def watched(real: Any, spot: Spot) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal depth
            report(Call(spot, depth))
            depth += 1
            try:
                return real(*args, **named)
            finally:
                depth -= 1

        return call

    with ExitStack() as stack:
        made: dict[Any, Any] = {}
        for space in _spaces():
            for key, held in list(space.items()):
                spot = spot_of(held) if isinstance(held, FunctionType) else None
                if spot is not None:
                    made.setdefault(held, watched(held, spot))
                    space[key] = made[held]
                    stack.callback(space.__setitem__, key, held)
        yield


def _spaces() -> Iterator[dict[Any, Any]]:
    """The names of each module of the core, and the tables among them."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hicache.core.") and isinstance(module, ModuleType):
            yield vars(module)
            yield from [held for held in vars(module).values() if type(held) is dict]
