"""The registry of wrong definitions: mistakes that only logits show.

The core, its books and the fingerprints of pages take a definition as it is: a window that is too
short, or a state of the wrong token, is a wrong answer that they call right. Each is declared in
`definitions` as a planted bug is (see invariants/planted). That file needs a library, so it is
imported when one is loaded; its names are read from its source.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hicache import registry

from ..planted.base import Bug, Function, declared, planting

_DEFINITIONS = Path(__file__).with_name("definitions.py")
_WRONG: dict[str, Bug] = {}


def wrong(
    owner: Any = None, attribute: str = "", *, families: tuple[str, ...]
) -> Callable[[Function], Function]:
    """Registers a function as a wrong definition, as `bug` registers a planted bug."""
    return declared(_WRONG, owner, attribute, {"families": families})


@cache
def names() -> list[str]:
    """Names of all: of the functions of that file, with hyphens for underscores."""
    functions = ast.parse(_DEFINITIONS.read_text(encoding="utf-8")).body
    found = [one.name for one in functions if isinstance(one, ast.FunctionDef)]
    return sorted(name.replace("_", "-") for name in found)


def load(name: str) -> Bug:
    """Raises CallerError for an unknown name."""
    wanted = name.replace("_", "-")
    if wanted not in names():
        raise registry.unknown("definitions", name, names())
    import_module(f"{__package__}.{_DEFINITIONS.stem}")
    return _WRONG[wanted]


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """Plants the mistake of that name within the block."""
    found = load(name)
    with planting(found.plant):
        yield found
