"""The compiled build: used where it is of this source, left alone where it is not, and the same in
all that it decides."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hicache import registry
from hicache.compiled import finder
from hicache.compiled.modules import compiled_files

_HANDLER = signal.getsignal(signal.SIGINT)
from traces import start  # noqa: E402

signal.signal(signal.SIGINT, _HANDLER)  # the command's own is for its process alone


def made(folder: Path, made_of: str) -> Path:
    (folder / finder.MANIFEST).write_text(f"{made_of}\nhicache.core.core\thicache/core/core.so\n")
    return folder


def test_a_build_of_this_source_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(finder.CHOICE, raising=False)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    folder = made(tmp_path, finder.fingerprint())
    file = str(folder / "hicache/core/core.so")
    assert finder.usable(folder) == {"hicache.core.core": file}
    assert finder.which(folder) == "replays run 1 compiled modules"
    assert finder.install(folder)
    assert finder.install(folder)
    [result] = [item for item in sys.meta_path if isinstance(item, finder.CompiledFinder)]
    spec = result.find_spec("hicache.core.core", None)
    assert spec is not None
    assert spec.origin == file
    assert result.find_spec("hicache.core.errors", None) is None


def test_a_build_of_another_source_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(finder.CHOICE, raising=False)
    before = sys.meta_path.copy()
    assert finder.which(tmp_path) == "pure source"
    folder = made(tmp_path, "cpython-311-x86_64 0000000000000000")
    assert not finder.install(folder)
    assert finder.which(folder) == f"pure source: {finder.AGAIN}"
    assert sys.meta_path == before
    monkeypatch.setenv(finder.CHOICE, "pure")
    assert finder.which(folder) == "pure source, as HICACHE_BUILD says"


def test_a_changed_source_has_another_fingerprint(tmp_path: Path) -> None:
    for name in compiled_files(finder.ROOT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((finder.ROOT / name).read_bytes())
    assert finder.fingerprint(tmp_path) == finder.fingerprint()
    with (tmp_path / "hicache/core/ledger.py").open("a") as ledger:
        ledger.write("# more\n")
    assert finder.fingerprint(tmp_path) != finder.fingerprint()


def test_commands_that_patch_or_read_the_source_run_the_source() -> None:
    assert start._COMPILED == ("replay", "size", "sweep")
    assert {*start._COMPILED} <= {*registry.names("traces.commands")}


def replayed(build: str, *options: str) -> tuple[object, str]:
    """Digest and checks of the built-in workload under a build, and what was written on stderr."""
    command = [sys.executable, "-m", "hicache", "replay", "--limit", "25", "--json", "-", *options]
    ran = subprocess.run(
        command, env=dict(os.environ, HICACHE_BUILD=build), capture_output=True, check=True
    )
    result = json.loads(ran.stdout)
    return (result["digest"], result["checks"]), ran.stderr.decode()


@pytest.mark.skipif(not finder.usable(), reason="no compiled build of this source: make compiled")
@pytest.mark.parametrize("options", [(), ("--components", "full,mamba=50"), ("--check", "every")])
def test_both_builds_decide_the_same(options: tuple[str, ...]) -> None:
    pure, compiled = (replayed(build, *options) for build in ("pure", "compiled"))
    assert pure[0] == compiled[0]
    assert finder.AGAIN not in compiled[1]
