"""Scripts of an engine's own calls: what is called through the recorder runs again by itself."""

import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from invariants.fuzz.script import Recorder, StandIn, raw
from tests.needs import PATIENCE_S

DOUBLES = '''
from __future__ import annotations
import heapq
from .nowhere import Nothing

LIMIT = 2
UNUSED = Nothing()

class Box:
    """A double."""
    def __init__(self, size: Nothing) -> None:
        self.size: int = size
        self.things = []
    def put(self, thing: Nothing) -> int:
        heapq.heappush(self.things, thing)
        return len(self.things)

def not_used() -> Nothing:
    return Nothing()

def few(box: Box) -> None:
    assert len(box.things) <= LIMIT, f"{len(box.things)} things"
'''


def run(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-I", str(path)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def doubles(path: Path) -> dict[str, object]:
    """The namespace of the doubles, as a module of ours has it."""
    path.write_text(DOUBLES)
    text = DOUBLES.replace("from .nowhere import Nothing", "Nothing = object")
    space: dict[str, object] = {"__name__": "invariants.fuzz.made_up"}
    exec(compile(text, str(path), "exec"), space)
    return space


def test_a_script_has_the_calls_and_the_used_doubles_alone(tmp_path: Path) -> None:
    space = doubles(tmp_path / "doubles.py")
    recorder = Recorder(on=True)
    box = recorder.make("box", space["Box"], 3)  # type: ignore[arg-type]
    for number in (5, 4):
        box.put(number)
        recorder.check(space["few"], box)  # type: ignore[arg-type]
    box.put(3)
    with pytest.raises(AssertionError, match="3 things"):
        recorder.check(space["few"], box)  # type: ignore[arg-type]
    text = recorder.script("A title.", [tmp_path / "doubles.py"])
    (tmp_path / "script.py").write_text(text)
    assert "not_used" not in text
    assert "import Nothing" not in text
    assert text.count("few(box") == 2  # its definition, and the last of its calls
    assert run(tmp_path / "script.py") == "AssertionError: 3 things"


def test_results_are_named_and_given_back() -> None:
    recorder = Recorder(on=True)
    result = recorder.make("found", OrderedDict)
    result["a"] = 1
    copy = result.copy()
    copy.update(result)
    assert isinstance(copy, StandIn)
    assert raw(copy) == {"a": 1}
    assert recorder.lines == [
        "found = OrderedDict()",
        "found['a'] = 1",
        "ordered_dict = found.copy()",
        "ordered_dict.update(found)",
    ]
