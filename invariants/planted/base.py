"""The interface of a planted bug's file, the registry, and how a bug is planted.

A planted bug is a small, realistic mistake in the real code. It replaces one function wherever the
project uses it. Each file defines

    ROWS    ids of the rows of docs/bugs.md that it re-creates; empty if there are none
    TITLE   one sentence: what the bug does
    KILLS   the check expected to find it first; "" if the core's asserts, the contents, the end of
            a run, or one of several checks find it
    COMPONENTS  optional: the only set of components with this bug, where a hunt looks
    FAULTS  optional: kinds of faults. Each exposes the bug alone, and without them it is not found
            in calm sequences (see _exposed). A hunt enables them more often
    DELAYS  optional: profile of the delays of replies in calm sequences; default: all equal
    EVICTION    optional: the only eviction policy that shows the bug
    WANTED  optional: True if the bug shows only with pins or with copies that expire
    RANKS   optional: number of ranks that the bug needs
    EXECUTOR    optional: executor of its hunts; default: replies
    HASHED  optional: True if the bug shows only in a process with another hash seed. A hunt plays
            each sequence in such a process, too
    plant   plant(patch), which calls patch(module or class, attribute, replacement)

Does not define a bug or hunt one (see _kill, _exposed).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from hicache.core.errors import CallerError

from ..source_lines import SourceLine, line_of, stand_in

ROW = re.compile(r"[A-N][1-9][0-9]?")
Patch = Callable[[Any, str, Any], None]
Undo = Callable[[], None]


class PlantedBug(Protocol):
    """The contents of a bug's module."""

    ROWS: tuple[str, ...]
    TITLE: str
    KILLS: str

    def plant(self, patch: Patch) -> None: ...


def names() -> list[str]:
    """Names of all planted bugs: file names with hyphens for underscores."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    found = (one for one in stems if not one.startswith("_") and one != "base")
    return sorted(one.replace("_", "-") for one in found)


def load(name: str) -> PlantedBug:
    """Returns the planted bug of that name. Raises CallerError for an unknown name."""
    wanted, known = name.replace("_", "-"), names()
    if wanted not in known:
        close = get_close_matches(wanted[:100], known, n=1)
        hint = f"did you mean {close[0]}?" if close else "hicache mutants --list has the names"
        found = ascii(name if len(name) <= 40 else f"{name[:40]}...")
        raise CallerError(
            f"planted: expected one of the {len(known)} bugs of invariants/planted, found {found}; "
            f"{hint}"
        )
    module: Any = import_module(f"{__package__}.{wanted.replace('-', '_')}")
    return module  # type: ignore[no-any-return]


def patched(name: str) -> list[SourceLine]:
    """Returns the functions of the project that a bug replaces, by their first line."""
    found: list[SourceLine | None] = []

    def note(owner: Any, attribute: str, replacement: Any) -> None:
        found.append(line_of(vars(owner)[attribute]))

    load(name).plant(note)
    return [one for one in found if one is not None]


@contextmanager
def planted(name: str) -> Iterator[PlantedBug]:
    """Plants the bug of that name within the block."""
    bug = load(name)
    with planting(bug.plant):
        yield bug


@contextmanager
def planting(plant: Callable[[Patch], None]) -> Iterator[None]:
    """Plants a bug within the block."""
    undo: list[Undo] = []

    def patch(owner: Any, attribute: str, replacement: Any) -> None:
        undo.extend(_replace(owner, attribute, replacement))

    try:
        plant(patch)
        yield
    finally:
        for step in reversed(undo):
            step()


def _replace(owner: Any, attribute: str, replacement: Any) -> Iterator[Undo]:
    """Replaces an attribute. For a module, replaces the object under every name in the project's
    modules and their dicts.
    """
    if attribute not in vars(owner):
        raise CallerError(f"patch: expected a name that {owner!r} defines, found {attribute!r}")
    original = vars(owner)[attribute]
    yield stand_in(replacement, original)
    if not isinstance(owner, ModuleType):
        setattr(owner, attribute, replacement)
        yield lambda: setattr(owner, attribute, original)
        return
    for space in _spaces():
        for key in [one for one, held in space.items() if held is original]:
            space[key] = replacement
            yield _restorer(space, key, original)


def _restorer(space: MutableMapping[Any, Any], key: Any, original: Any) -> Undo:
    def restore() -> None:
        space[key] = original

    return restore


def _spaces() -> Iterator[MutableMapping[Any, Any]]:
    """Yields the namespace of each loaded module of the project, and the dicts in it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hicache.") and isinstance(module, ModuleType):
            yield vars(module)
            yield from [held for held in vars(module).values() if type(held) is dict]
