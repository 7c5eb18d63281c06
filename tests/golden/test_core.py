"""The core decides what it decided: event by event, replay by replay, under every hash seed."""

import json
import re
from pathlib import Path

import pytest

from hicache.runtime.recording import replay

from .playing import (
    GOLDEN,
    RECORDINGS,
    ROOT,
    SHORT,
    decisions,
    figures,
    python,
    recorded,
    replayed,
    turns,
)

README = "84d6f60cd903e46db52d41c36f5a764b"
_ALL = """
import json
from tests.golden.playing import RECORDINGS, SHORT, decisions
print(json.dumps({name: decisions(name) for name in [*RECORDINGS, *SHORT]}))
"""
_LIGHT = """
import sys
from traces.cli import main
assert main(sys.argv[1:]) == 0
assert not {"torch", "transformers", "jinja2"} & {*sys.modules}
"""


@pytest.mark.parametrize("name", [*RECORDINGS, *SHORT])
def test_each_outcome_is_as_recorded(name: str) -> None:
    assert decisions(name) == GOLDEN["decisions"][name]
    recording = recorded(name)
    assert replay(recording) == recording.digest


def test_no_hash_seed_changes_an_outcome() -> None:
    """Beside the drawn one of this process."""
    assert json.loads(python(4242, "-c", _ALL)) == GOLDEN["decisions"]


def test_the_first_command_prints_the_report_of_the_docs_and_loads_little(tmp_path: Path) -> None:
    """Its digest is that of the README."""
    out = tmp_path / "out.json"
    printed = python(77, "-c", _LIGHT, "replay", "--json", str(out)).splitlines()
    result = figures(json.loads(out.read_text()))
    assert result["digest"] == README
    assert result == GOLDEN["first command"]
    page = (ROOT / "docs/replay.md").read_text()
    [report] = re.findall(r"```text\n(\S+ % of the prompt tokens.*?)```", page, re.DOTALL)
    wanted = [line for line in report.splitlines() if not line.startswith("wall time")]
    assert [line.rstrip() for line in printed if not line.startswith("wall time")] == wanted
    assert len(printed) <= 45
    assert f"`{README}`" in (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> str:
    return turns(tmp_path_factory.mktemp("turns"))


@pytest.mark.parametrize("case", GOLDEN["replays"])
def test_a_replay_has_the_digest_and_the_hits_that_it_had(
    case: str, conversations: str, tmp_path: Path
) -> None:
    words = [conversations if word == "TURNS" else word for word in case.split()]
    assert replayed(tmp_path, *words) == GOLDEN["replays"][case]
