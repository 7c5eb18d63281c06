"""What a planted bug's file defines, the registry of them, and how one is put in and taken out.

A planted bug is a small mistake of the kind users have met, put into the real code: it replaces one
function, wherever the project has bound it. Each file defines

    ROWS    the rows of docs/bugs.md that it re-creates, by id; empty where there is none
    TITLE   one sentence: what the bug does
    KILLS   the check expected to find it first, or "" where the core's own asserts, the content or
            the end of a run do, or one of several checks
    COMPONENTS  optional: the only set of components that has it, so that a hunt looks there
    FAULTS  optional: kinds of faults each of which exposes it alone, and without which it is not
            seen in sequences that are otherwise calm (`exposed`); a hunt has them on more often
    DELAYS  optional: how long replies take in those, a profile's name; all as long unless given
    EVICTION    optional: the only eviction policy that shows it, so that a hunt looks there
    RANKS   optional: how many ranks it takes to have it; one has none of it
    EXECUTOR    optional: the kind of executor on which it is hunted, replies alone unless given
    plant   plant(patch), which calls patch(module or class, attribute, replacement)

Must not live here: what a bug does, or how it is hunted (`kill`, `exposed`).
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

ROW = re.compile(r"[A-N][1-9][0-9]?")
Patch = Callable[[Any, str, Any], None]
Undo = Callable[[], None]


class PlantedBug(Protocol):
    """What the module of an entry has."""

    ROWS: tuple[str, ...]
    TITLE: str
    KILLS: str

    def plant(self, patch: Patch) -> None: ...


def names() -> list[str]:
    """Every planted bug: file names, underscores as hyphens."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    found = (one for one in stems if not one.startswith("_") and one != "base")
    return sorted(one.replace("_", "-") for one in found)


def load(name: str) -> PlantedBug:
    """The planted bug of that name. Raises CallerError for a name that is not in the folder."""
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


@contextmanager
def planted(name: str) -> Iterator[PlantedBug]:
    """The real code has this bug until the block ends."""
    bug = load(name)
    undo: list[Undo] = []

    def patch(owner: Any, attribute: str, replacement: Any) -> None:
        undo.extend(_replace(owner, attribute, replacement))

    try:
        bug.plant(patch)
        yield bug
    finally:
        for step in reversed(undo):
            step()


def _replace(owner: Any, attribute: str, replacement: Any) -> Iterator[Undo]:
    """Of a module: under every name that a module of the project has for it, tables included."""
    if attribute not in vars(owner):
        raise CallerError(f"patch: expected a name that {owner!r} defines, found {attribute!r}")
    original = vars(owner)[attribute]
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
    """The names of each module of the project that is in use, and the tables among them."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hicache.") and isinstance(module, ModuleType):
            yield vars(module)
            yield from [held for held in vars(module).values() if type(held) is dict]
