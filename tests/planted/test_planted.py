"""Every planted bug is found by its stored sequences, and each of these is clean without it.

The notes of the first sequence of a bug name the check that finds it with the checks alone, and the
event whose rule the specification alone tells to be broken. A further sequence shows the bug by a
kind of fault alone, which its acts name. So no check, rule or kind is untested.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hicache.core import admission, core
from invariants.base import check_names
from invariants.fuzz import sequence as sequences
from invariants.fuzz.hicache.play import replay
from invariants.fuzz.hicache.player import KINDS as FAULTS
from invariants.fuzz.play import Failure
from invariants.fuzz.sequence import Act, Entry, FuzzSequence
from invariants.spec.specification import RULES
from tests.planted import BUGS, planted

SEQUENCES = {
    path.stem: sequences.read(path)
    for path in (Path(__file__).parent / "sequences").glob("*.jsonl")
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


def result_of(
    sequence: FuzzSequence, laws: tuple[str, ...] | None = None, differential: bool | None = None
) -> Failure | None:
    """The failure with the bug planted. differential: with the specification, or not."""
    with planted(sequence.notes["plant"]):
        level = "off" if differential else "every"
        return replay(sequence, level, checks=laws, differential=differential).failure


def exposing(sequence: FuzzSequence) -> set[str]:
    """The kinds of faults in the sequence without each of which the bug is not found."""

    def without(fault: str) -> FuzzSequence:
        def acts(entry: Entry) -> tuple[Act, ...]:
            return tuple(
                act._replace(fault="") if act.fault == fault else act for act in entry.acts
            )

        return replace(
            sequence, entries=tuple(entry._replace(acts=acts(entry)) for entry in sequence.entries)
        )

    faults = {act.fault for entry in sequence.entries for act in entry.acts} - {""}
    return {fault for fault in faults if result_of(without(fault)) is None}


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_a_bug_is_found_and_the_sequence_is_clean_without_it(name: str) -> None:
    sequence = SEQUENCES[name]
    failure = replay(sequence).failure
    assert failure is None, failure.text
    assert result_of(sequence) is not None
    if law := sequence.notes.get("law"):
        failure = result_of(sequence, (law,) if law in check_names() else (), differential=False)
        assert failure is not None
        assert failure.kind == (law.upper() if law in check_names() else law)
    if rule := sequence.notes.get("rule"):
        failure = result_of(sequence, differential=True)
        assert failure is not None
        assert failure.kind.startswith("SPEC ")
        assert failure.event_text.startswith(f"{rule}(")
    if "." in name:
        assert exposing(sequence)


def test_every_bug_has_a_sequence_and_every_law_rule_and_kind_of_fault_a_bug() -> None:
    assert {sequence.notes["plant"] for sequence in SEQUENCES.values()} == {*BUGS}
    laws = {sequence.notes.get("law", "") for sequence in SEQUENCES.values()}
    rules = {sequence.notes.get("rule", "") for sequence in SEQUENCES.values()}
    shown = {fault for sequence in SEQUENCES.values() for fault in exposing(sequence)}
    assert {word.partition(" ")[0] for word in laws - {*check_names(), ""}} == KINDS
    missing = {*check_names()} - laws | {event.__name__ for event in RULES} - rules
    assert missing | {*FAULTS[""]} - shown == {*NO_BUG_OF}
    assert "half of it" in shown
    assert {sequence.ranks > 1 for sequence in SEQUENCES.values()} == {True, False}
    assert len({sequence.executor for sequence in SEQUENCES.values()}) > 1


# -- planting


def bindings() -> Iterator[tuple[str, str, int]]:
    """What each name of the project stands for now, tables and classes included."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("hicache.") and isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                yield name, key, id(value)
                inner = value if type(value) is dict else getattr(value, "__dict__", {})
                if type(value) is dict or isinstance(value, type):
                    for item, kept in list(inner.items()):
                        yield name, f"{key}.{item}", id(kept)


def test_a_bug_replaces_its_functions_everywhere_and_only_within_the_block() -> None:
    before = list(bindings())
    for name in [*BUGS][::8]:
        with planted(name):
            assert list(bindings()) != before, name
    with planted("failed-prefill-is-published"):
        assert admission.prefill_done in core._HANDLERS.values()
    with pytest.raises(ValueError, match="told"), planted("failed-prefill-is-published"):
        raise ValueError("told")
    assert list(bindings()) == before
