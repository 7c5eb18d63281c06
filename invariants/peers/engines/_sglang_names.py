"""Names that releases of SGLang have in different modules."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def is_there(module: str) -> bool:
    """Whether this release has a module of SGLang."""
    try:
        return find_spec(f"sglang.srt.{module}") is not None
    except ModuleNotFoundError:
        return False


def anywhere(name: str, *modules: str) -> Any:
    """What the first of these modules that has it calls so; an empty class where none has."""
    for module in modules:
        if is_there(module):
            found = getattr(import_module(f"sglang.srt.{module}"), name, None)
            if found is not None:
                return found
    return type(name, (), {})
