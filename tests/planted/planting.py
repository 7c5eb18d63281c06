"""Plants a bug of `bugs`: the registry, and the replacement of functions for the time of a block.

    @bug(backup, "land_backup")
    def failed_backup_is_published(state: Any, transfer: Any, ok: bool) -> None:
        "One sentence: what the bug does."

Without a place, the function is called with patch(module or class, attribute, replacement). The
name of the bug is that of its function, with hyphens.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Patch = Callable[[Any, str, Any], None]
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(owner: Any = None, attribute: str = "") -> Callable[[Any], Any]:
    """Registers a function as a bug."""

    def add(function: Any) -> Any:
        def plant(patch: Patch) -> None:
            patch(owner, attribute, function)

        BUGS[function.__name__.replace("_", "-")] = function if owner is None else plant
        return function

    return add


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plants the bug of that name within the block. In a module, the function is replaced under
    every name in the project's modules and their dicts."""
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, attribute: str, replacement: Any) -> None:
        original = vars(owner)[attribute]
        if not isinstance(owner, ModuleType):
            undo.append((owner, attribute, original))
            setattr(owner, attribute, replacement)
            return
        for space in _spaces():
            for key in [key for key, value in space.items() if value is original]:
                undo.append((space, key, original))
                space[key] = replacement

    try:
        BUGS[name](patch)
        yield
    finally:
        for place, key, original in reversed(undo):
            if isinstance(place, dict):
                place[key] = original
            else:
                setattr(place, key, original)


def _spaces() -> Iterator[dict[Any, Any]]:
    """The namespace of each loaded module of the project, and the dicts in it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hicache.") and isinstance(module, ModuleType):
            yield vars(module)
            yield from [value for value in vars(module).values() if type(value) is dict]
