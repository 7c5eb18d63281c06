"""A few drawn histories of each store; `python -m tests.storage.histories` plays thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hicache.storage.backends import _file_room
from hicache.storage.backends._file_index import Index, Row

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


@pytest.mark.parametrize("name", ["file", "hf3fs"])
def test_histories_with_calls_that_are_refused(name: str, tmp_path: Path) -> None:
    found = total(name, tmp_path, range(COUNT))
    assert found["histories"] == COUNT
    assert min(found["kills"], found["no fault: write done"], found["evictions judged"]) > 0
    assert found["changes during a call"] > COUNT


@pytest.mark.parametrize("name", ["file-full", "hf3fs-full"])
def test_histories_on_a_disk_that_others_fill(name: str, disk: Path) -> None:
    found = total(name, disk, range(COUNT))
    assert found["fault full disk"] > COUNT / 2
    assert found["full disk: write full"] > 0
    assert found["full disk: write done"] > 0


def find(name: str, folder: Path, seeds: int = 60) -> str:
    """What the laws say about one of so many histories."""
    with pytest.raises(AssertionError) as caught:
        total(name, folder, range(seeds))
    return str(caught.value)


def test_a_store_that_evicts_the_hottest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., _file_room.Coldest | None] = _file_room.coldest_page

    def hottest(base: object, size: int) -> _file_room.Coldest | None:
        page = real(base, size)
        if page is None:
            return None
        row = base.execute(  # type: ignore[attr-defined]
            "SELECT family, used FROM slots WHERE key IS NOT NULL AND slot_bytes = ?"
            " ORDER BY used DESC LIMIT 1",
            (size,),
        ).fetchone()
        return _file_room.Coldest(*row, 1)

    monkeypatch.setattr(_file_room, "coldest_page", hottest)
    assert "gone: " in find("file", tmp_path)


def _by_its_slot(self: Index, rows: dict[str, Row], stamp: object) -> set[str]:
    """As `Index.moved`, for a value that was written anew into the same slot, too."""
    now, _ = self.find(list(rows))
    return {key for key, row in rows.items() if key not in now or now[key].slot != row.slot}


@pytest.mark.parametrize("moved", [lambda *given: set(), _by_its_slot], ids=["never", "by slot"])
def test_a_read_that_does_not_see_that_its_slot_was_given_away_is_found(
    moved: Callable[..., set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "moved", moved)
    assert "was found corrupt" in find("file", tmp_path, 200)


def test_a_store_that_does_not_count_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_file_room, "tally", lambda base, what, count: None)
    assert " of 0" in find("file", tmp_path)


def test_a_store_that_cannot_go_on_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots that are not given back after a write that failed."""
    monkeypatch.setattr("hicache.storage.slots.Slots.undo", lambda *given: None)
    assert find("hf3fs", tmp_path, 200)


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
