"""Policies and schedulers of a user's own: named on the command line, and never loaded because a
file says so."""

from pathlib import Path
from typing import Any

import pytest

from .rig import HEADER, Capsys, fails, native, replayed, write

MINE = '''
from hicache.core.eviction_policies import Term, before
from sim.schedulers import Scheduler

class Mine:
    """What few requests used goes first, the oldest of it before all."""

    name = "mine"
    whole_path = False
    order = (Term("hits", 3), Term("inserted"))

    def rank(self, node, component):
        return before(min(node.hits, 3), node.inserted)

class Lru(Mine):
    name = "lru"

class Third:
    name, threshold, on_evict, contiguous = "third", 3, False, True

class Shortest(Scheduler):
    """The shortest prompt first."""

    def best(self, reusable):
        return min(self.queue, key=lambda one: one.length)

class Late(Mine):
    name, calls = "late", 0

    def rank(self, node, component):
        if node.hits == 4:
            raise RuntimeError("no rank")
        return super().rank(node, component)

'''
REQUESTS = [
    native((f"s{index % 5}", 64), (f"q{index}", 200), output=(f"a{index}", 20), timestamp=index)
    for index in range(40)
]
SMALL = ["--page-size", "16", "--device-tokens", "1600", "--host-ratio", "1", "--check", "every"]


@pytest.fixture
def mine(here: None) -> str:
    """A file of a user's own, in the folder where the command runs; forgotten afterwards."""
    Path("mine.py").write_text(MINE)
    write(Path("trace.jsonl"), HEADER, *REQUESTS)
    return "./mine.py"


def results(*options: str) -> dict[str, Any]:
    return replayed(Path(), "trace.jsonl", *SMALL, *options)


def test_a_policy_from_a_file_is_checked_like_ours(mine: str) -> None:
    result = results("--eviction", f"{mine}:Mine", "--write-policy", f"{mine}:Third")
    assert result["config"]["eviction_policy"] == "mine"
    assert result["config"]["write_policy"] == "third"
    assert result["checks"]["violations"] == 0
    assert result["checks"]["not_judged"] == ""
    assert result["checks"]["specified"] == result["checks"]["operations"] > 0
    assert result["digest"] != results()["digest"]
    result = results("--scheduler", f"{mine}:Shortest", "--engine", "vllm?max_running=1")
    assert result["config"]["scheduler"] == "shortest"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--eviction {}:Nothing", "expected Nothing in it, found none"),
        ("--eviction {}:Lru", "expected a name in lower case that none of fifo, lfu"),
        ("--eviction {}", "for your own: --eviction path.py:Name"),
        ("--write-policy {}:Mine", "expected threshold"),
        ("--scheduler {}:Mine", "expected no exception, found TypeError"),
    ],
)
def test_an_unusable_file_is_refused_in_one_line(
    mine: str, option: str, words: str, capsys: Capsys
) -> None:
    assert words in fails(capsys, "replay", "trace.jsonl", *option.format(mine).split())


def test_an_error_of_a_users_file_during_a_run_names_its_line(mine: str, capsys: Capsys) -> None:
    message = fails(capsys, "replay", "trace.jsonl", *SMALL, "--eviction", f"{mine}:Late")
    assert "mine.py, line" in message
    assert "Late.rank: expected no exception, found RuntimeError: no rank" in message
