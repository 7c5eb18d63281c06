"""What checks forgive is counted, and a planted bug for each reason shows that it hides nothing."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from invariants import checks
from invariants.base import load_check
from invariants.planted import base
from invariants.reasons import Reason
from invariants.watch import Watch, excuses_by_check

from .life import Life, corner
from .test_planted import hybrid

FOLDER = Path(str(checks.__file__)).parent


def named_in(tree: ast.AST) -> set[Reason]:
    return {
        Reason[node.attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Reason"
    }


def test_each_use_of_a_reason_is_counted_by_check_and_reason() -> None:
    one, other = load_check("durable"), load_check("backup-due")
    watch = Watch(checks=[one, other])
    assert not watch.excuses
    for check in (one, one, other):
        check.excuse(Reason.NO_ROOM)
    one.excuse(Reason.FAILED)
    assert watch.excuses == Counter(
        {
            ("DURABLE", Reason.NO_ROOM): 2,
            ("DURABLE", Reason.FAILED): 1,
            ("BACKUP-DUE", Reason.NO_ROOM): 1,
        }
    )
    assert excuses_by_check(watch.excuses) == {
        "BACKUP-DUE": {"host had no room": 1},
        "DURABLE": {"host had no room": 2, "its copy failed": 1},
    }


def test_a_run_counts_what_its_checks_forgave() -> None:
    life = Life(corner(hybrid()), 1, Watch("every"), content=False)
    life.run(300)
    found = excuses_by_check(life.watch.excuses)
    assert found["EVICT-MIN"]["pages of a node that another pool evicted"] > 0
    assert all(count > 0 for reasons in found.values() for count in reasons.values())


def test_checks_use_every_reason() -> None:
    used = [named_in(ast.parse(path.read_text())) for path in FOLDER.glob("*.py")]
    assert set[Reason]().union(*used) == set(Reason)


def test_every_reason_has_a_planted_bug_that_it_does_not_hide() -> None:
    shown = {reason for name in base.names() for reason in base.load(name).excuses}
    assert shown == set(Reason)
