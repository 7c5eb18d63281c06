"""Planted bugs: the registry says what is there, planting leaves nothing behind, hunts find them.

The whole kill matrix is a command of its own; here is what a hunt of a few sequences must find.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hicache.core import admission, backup, core, flights
from hicache.core.errors import CallerError
from hicache.core.ledger import Pool
from hicache.core.radix import locks
from invariants.base import check_names
from invariants.planted import _kill as kill
from invariants.planted import base

FOLDER = Path(base.__file__).parent


def bindings() -> Iterator[tuple[str, str, int]]:
    """What each name of the project stands for now, tables and classes included."""
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("hicache.") or not isinstance(module, ModuleType):
            continue
        for key, held in list(vars(module).items()):
            yield name, key, id(held)
            if type(held) is dict or isinstance(held, type):
                inner: Any = held if type(held) is dict else vars(held)
                for one, value in list(inner.items()):
                    yield name, f"{key}.{one}", id(value)


def test_every_entry_is_complete() -> None:
    for name in base.names():
        bug = base.load(name)
        assert bug.name == name
        assert all(base.ROW.fullmatch(row) for row in bug.rows), name
        assert re.fullmatch(r"[A-Z].*[^.]\.", bug.title), name
        assert bug.kills in ("", "spec", *check_names()), name
        for several in (bug.rows, bug.components, bug.faults, bug.families):
            assert isinstance(several, tuple), name


def rows_of_the_catalogue() -> set[str]:
    """The rows that docs/bugs.md speaks of, ranges included."""
    text = (FOLDER.parents[1] / "docs" / "bugs.md").read_text()
    rows = {*re.findall(r"\b[A-N][1-9][0-9]?\b", text)}
    for letter, first, last in re.findall(r"\b([A-N])(\d+)\u2013[A-N](\d+)\b", text):
        rows |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
    return rows


def test_rows_exist_in_the_catalogue() -> None:
    known = rows_of_the_catalogue()
    for name in base.names():
        assert {*base.load(name).rows} <= known, name


def test_titles_differ() -> None:
    titles = [base.load(name).title for name in base.names()]
    assert len({*titles}) == len(titles)


@pytest.mark.one_in(8)
def test_planted_bugs_are_removed_after_their_blocks() -> None:
    base.names()
    before = list(bindings())
    for name in base.names():
        with base.planted(name) as bug:
            assert bug is base.load(name)
    assert list(bindings()) == before


def test_a_failure_in_the_block_removes_the_bug() -> None:
    before = list(bindings())
    with base.planted("failed-backup-is-published"):
        assert backup.land_backup is core.land_backup
        assert list(bindings()) != before
    with pytest.raises(CallerError), base.planted("failed-backup-is-published"):
        base.load("nothing")
    assert list(bindings()) == before


def test_a_patch_follows_its_function_into_every_module_and_table() -> None:
    real, failing = locks.release, admission.prefill_done
    with base.planted("early-release-skips-the-last"):
        assert locks.release is admission.release is flights.release is not real
    with base.planted("failed-prefill-is-published"):
        assert failing not in core._HANDLERS.values()
    assert failing in core._HANDLERS.values()


def test_a_patch_of_a_missing_name_is_an_error() -> None:
    for owner, attribute in ((locks, "nothing"), (Pool, "nothing")):
        with pytest.raises(CallerError, match="nothing"):
            list(base._replace(owner, attribute, None))


def test_an_unknown_name_is_refused_in_one_line() -> None:
    with pytest.raises(CallerError, match="did you mean duplicate-pages-leak") as found:
        base.load("duplicate-leak")
    assert "\n" not in str(found.value)


@pytest.mark.one_in(8)
def test_without_a_bug_the_same_sequences_are_clean_and_a_hunt_repeats() -> None:
    name = "load-source-is-not-locked"
    one, two = (kill.hunt(name, range(4)) for _ in range(2))
    assert one.failure is not None
    assert (one.found, one.operations, one.tape) == (two.found, two.operations, two.tape)
    with pytest.MonkeyPatch.context() as patch:
        harmless = replace(base.load(name), plant=lambda patch: None)
        patch.setitem(base._BUGS, name, harmless)
        clean = kill.hunt(name, range(4))
    assert (clean.failure, clean.sequences) == (None, 4)
