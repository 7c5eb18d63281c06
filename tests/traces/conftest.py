"""What tests of several commands start from: an empty folder, a measured profile, a trace."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from traces import plugins
from traces.cli import main

from .rig import Patch, turns_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Patch) -> Iterator[None]:
    """The command runs in an empty folder, and forgets a user's own policies afterwards."""
    monkeypatch.chdir(tmp_path)
    yield
    plugins.forget()


@pytest.fixture(scope="session")
def turns(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Conversations: 5 clients, 6 rounds, 256 tokens asked and answered."""
    return turns_of(tmp_path_factory.mktemp("turns"), "--clients", "5", "--rounds", "6")


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real calibration of this machine's memory, as short as it can be."""
    path = tmp_path_factory.mktemp("calibrated") / "cpu.json"
    assert main(["calibrate", "-o", str(path), "--pages", "8", "--repeats", "3"]) == 0
    return path


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that a device serves in a moment."""
    return Path(turns_of(tmp_path_factory.mktemp("twin"), "--clients", "4", "--rounds", "3"))
