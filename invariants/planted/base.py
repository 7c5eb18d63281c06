"""The catalogue of planted bugs: what is known of each, the registry, and how one is planted.

A planted bug is a small, realistic mistake in the real code. Each file of this folder has those of
one module, or of a few that are read together. The usual bug replaces one function wherever the
project uses it:

    @bug(backup, "land_backup", rows=("C16",), kills="bytes", faults=("fail", "torn whole"))
    def failed_backup_is_published(state: Any, flight: Any, ok: bool) -> None:
        "One sentence: what the bug does."

Without a place, the function is `plant(patch)` itself, which calls patch(module or class,
attribute, replacement) for each place. The name of the bug is that of its function, with hyphens.
Does not define a bug or hunt one (see _kill, _exposed).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from hicache.core.errors import CallerError

from ..fuzz.executors import REPLIES
from ..source_lines import SourceLine, line_of, stand_in

ROW = re.compile(r"[A-N][1-9][0-9]?")
Patch = Callable[[Any, str, Any], None]
Undo = Callable[[], None]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Bug:
    """One planted bug.

    title: one sentence, what it does. rows: ids of the rows of docs/bugs.md that it re-creates.
    kills: the check expected to find it first; empty if the core's asserts, the contents, the end
    of a run, or one of several checks find it. components: the only set with this bug, where a hunt
    looks. faults: kinds that each expose the bug alone; without them it is not found in calm
    sequences (see _exposed), and a hunt enables them more often. delays: profile of the delays of
    replies in calm sequences, where the bug needs one. eviction: the only policy that shows it.
    wanted: it shows only with pins or with copies that expire. ranks, passes: how many it needs.
    executor: of its hunts. hashed: it shows only in a process with another hash seed, so a hunt
    plays each sequence in such a process, too. families: of a wrong definition, the models whose
    logits show it.
    """

    name: str
    title: str
    plant: Callable[[Patch], None]
    rows: tuple[str, ...] = ()
    kills: str = ""
    components: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    delays: str = ""
    eviction: str = ""
    wanted: bool = False
    ranks: int = 0
    passes: int = 0
    executor: str = REPLIES
    hashed: bool = False
    families: tuple[str, ...] = ()


_BUGS: dict[str, Bug] = {}


def bug(owner: Any = None, attribute: str = "", **facts: Any) -> Callable[[Function], Function]:
    """Registers a function as a bug. facts: fields of `Bug`."""
    return declared(_BUGS, owner, attribute, facts)


def declared(
    bugs: dict[str, Bug], owner: Any, attribute: str, facts: dict[str, Any]
) -> Callable[[Function], Function]:
    """Returns the decorator that adds a function to `bugs`."""

    def add(function: Function) -> Function:
        def replace(patch: Patch) -> None:
            patch(owner, attribute, function)

        name = function.__name__.replace("_", "-")
        title = " ".join((function.__doc__ or "").split())
        assert name not in bugs, f"{name}: two bugs have this name"
        bugs[name] = Bug(name, title, function if owner is None else replace, **facts)
        return function

    return add


@cache
def _catalogue() -> dict[str, Bug]:
    """Imports every file at once: one that is imported while a bug is planted would keep it."""
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        import_module(f"{__package__}.{path.stem}")
    return _BUGS


def names() -> list[str]:
    """Names of all planted bugs."""
    return sorted(_catalogue())


def load(name: str) -> Bug:
    """Returns the planted bug of that name. Raises CallerError for an unknown name."""
    wanted, known = name.replace("_", "-"), _catalogue()
    if wanted not in known:
        close = get_close_matches(wanted[:100], names(), n=1)
        hint = f"did you mean {close[0]}?" if close else "see docs/planted.md"
        found = ascii(name if len(name) <= 40 else f"{name[:40]}...")
        raise CallerError(
            f"planted: expected one of the {len(known)} bugs of invariants/planted, found {found}; "
            f"{hint}"
        )
    return known[wanted]


def patched(name: str) -> list[SourceLine]:
    """Returns the functions of the project that a bug replaces, by their first line."""
    found: list[SourceLine | None] = []

    def note(owner: Any, attribute: str, replacement: Any) -> None:
        found.append(line_of(vars(owner)[attribute]))

    load(name).plant(note)
    return [one for one in found if one is not None]


@contextmanager
def planted(name: str) -> Iterator[Bug]:
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
