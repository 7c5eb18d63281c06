"""Every planted bug is found by its stored sequences, and each of these is clean without it.

The notes of the first sequence of a bug name the law that finds it with the laws alone, and the
event whose rule the specification alone tells to be broken. A further sequence shows the bug by a
kind of fault alone, which its acts name. From these follows that no law, rule or kind is untested.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hicache.core import admission, core
from invariants.base import check_names
from invariants.fuzz import sequence as tapes
from invariants.fuzz.hicache.hand import KINDS as FAULTS
from invariants.fuzz.hicache.operations import OPERATIONS as OPS
from invariants.fuzz.hicache.play import replay
from invariants.fuzz.play import Failure
from invariants.fuzz.sequence import Act, Entry, Tape
from invariants.spec.specification import RULES
from tests.planted import BUGS, planted

SEQUENCES = {
    path.stem: tapes.read(path) for path in (Path(__file__).parent / "sequences").glob("*.jsonl")
}
NO_BUG_OF = {
    "pin-node": "its own fault spoils a core (tests/golden/test_laws.py)",
    "MatchWanted": "answered as an arrival is",
    "Retracted": "ends as Finished does",
    "PrefetchLimitReached": "ends a wait, which tests/golden/test_core.py shows",
    "DeleteDone": "changes one flag, which tests/golden/test_core.py shows",
    "StorageAttached": "changes one flag, which tests/golden/test_core.py shows",
}
KINDS = {"MISUSE", "LIVENESS", "COLL-SEQ", "RANK-EQ", "HAZARD", "BYTES"}


def found(
    tape: Tape, laws: tuple[str, ...] | None = None, against: bool | None = None
) -> Failure | None:
    """The failure with the bug planted. against: with the specification alone, or without it."""
    with planted(tape.notes["plant"]):
        level = "off" if against else "every"
        return replay(tape, OPS, level, checks=laws, against=against).failure


def exposing(tape: Tape) -> set[str]:
    """The kinds of faults in the tape without each of which the bug is not found."""

    def without(fault: str) -> Tape:
        def acts(entry: Entry) -> tuple[Act, ...]:
            return tuple(
                act._replace(fault="") if act.fault == fault else act for act in entry.acts
            )

        return replace(tape, entries=tuple(one._replace(acts=acts(one)) for one in tape.entries))

    faults = {act.fault for entry in tape.entries for act in entry.acts} - {""}
    return {fault for fault in faults if found(without(fault)) is None}


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_a_bug_is_found_and_the_sequence_is_clean_without_it(name: str) -> None:
    tape = SEQUENCES[name]
    failure = replay(tape, OPS).failure
    assert failure is None, failure.text
    assert found(tape) is not None
    if law := tape.notes.get("law"):
        failure = found(tape, (law,) if law in check_names() else None, against=False)
        assert failure is not None
        assert failure.kind == (law.upper() if law in check_names() else law)
    if rule := tape.notes.get("rule"):
        failure = found(tape, against=True)
        assert failure is not None
        assert failure.kind.startswith("SPEC ")
        assert failure.event_text.startswith(f"{rule}(")
    if "." in name:
        assert exposing(tape)


def test_every_bug_has_a_sequence_and_every_law_rule_and_kind_of_fault_a_bug() -> None:
    assert {tape.notes["plant"] for tape in SEQUENCES.values()} == {*BUGS}
    laws = {tape.notes.get("law", "") for tape in SEQUENCES.values()}
    rules = {tape.notes.get("rule", "") for tape in SEQUENCES.values()}
    shown = {fault for tape in SEQUENCES.values() for fault in exposing(tape)}
    assert {word.partition(" ")[0] for word in laws - {*check_names(), ""}} == KINDS
    missing = {*check_names()} - laws | {event.__name__ for event in RULES} - rules
    assert missing | {*FAULTS[""]} - shown == {*NO_BUG_OF}
    assert "half of it" in shown
    assert {tape.ranks > 1 for tape in SEQUENCES.values()} == {True, False}
    assert len({tape.executor for tape in SEQUENCES.values()}) > 1


# -- planting


def bindings() -> Iterator[tuple[str, str, int]]:
    """What each name of the project stands for now, tables and classes included."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("hicache.") and isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                yield name, key, id(value)
                inner = value if type(value) is dict else getattr(value, "__dict__", {})
                if type(value) is dict or isinstance(value, type):
                    for one, held in list(inner.items()):
                        yield name, f"{key}.{one}", id(held)


def test_a_bug_replaces_its_functions_everywhere_and_only_within_the_block() -> None:
    before = list(bindings())
    for name in BUGS:
        with planted(name):
            assert list(bindings()) != before, name
    with planted("failed-prefill-is-published"):
        assert admission.prefill_done in core._HANDLERS.values()
    with pytest.raises(ValueError, match="told"), planted("one-transfer-per-node"):
        raise ValueError("told")
    assert list(bindings()) == before
