"""A few drawn histories of each store; `python -m tests.storage.histories` plays thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import histories, kill
from .mediums import SUBJECTS, small_disk

MIB = 1 << 20
COUNT = 20


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        with small_disk(tmp_path_factory.mktemp("disk"), 6 * MIB) as folder:
            yield folder
    except OSError as error:
        pytest.skip(str(error))


def total(name: str, folder: Path, seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        found += histories.play(SUBJECTS[name], folder, seed)
    return found


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", ["file", "hf3fs"])
def test_histories_with_calls_that_are_refused(name: str, tmp_path: Path) -> None:
    found = total(name, tmp_path, range(COUNT))
    assert found["histories"] == COUNT
    assert min(found["kills"], found["no fault: write done"], found["evictions judged"]) > 0
    assert found["changes during a call"] > COUNT


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", ["file-full", "hf3fs-full"])
def test_histories_on_a_disk_that_others_fill(name: str, disk: Path) -> None:
    found = total(name, disk, range(COUNT))
    assert found["fault full disk"] > COUNT / 2
    assert found["full disk: write full"] > 0
    assert found["full disk: write done"] > 0


@pytest.mark.parametrize(("main", "subject"), [(histories.main, ["file"]), (kill.main, [])])
def test_a_folder_that_is_missing_is_one_line(
    main: Callable[[], None],
    subject: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = str(tmp_path / "not there")
    monkeypatch.setattr("sys.argv", ["drawn", *subject, "--folder", missing])
    with pytest.raises(SystemExit, match="2"):
        main()
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{missing!r} is not a folder that exists" in last
