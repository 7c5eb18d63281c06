"""Drawn histories of each store."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import histories
from .mediums import SUBJECTS, small_disk

MIB = 1 << 20
COUNT = 8


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        with small_disk(tmp_path_factory.mktemp("disk"), 6 * MIB) as folder:
            yield folder
    except OSError as error:
        pytest.skip(str(error))


def total(name: str, folder: Path, seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += histories.play(SUBJECTS[name], folder, seed)
    return counts


@pytest.mark.parametrize("name", ["file", "hf3fs"])
def test_histories_with_calls_that_are_refused(name: str, tmp_path: Path) -> None:
    counts = total(name, tmp_path, range(COUNT))
    assert counts["histories"] == COUNT
    assert min(counts["kills"], counts["no fault: write done"], counts["evictions judged"]) > 0


@pytest.mark.parametrize("name", ["file-full", "hf3fs-full"])
def test_histories_on_a_disk_that_others_fill(name: str, disk: Path) -> None:
    counts = total(name, disk, range(COUNT))
    assert counts["fault full disk"] > COUNT / 2
    assert counts["full disk: write full"] > 0
    assert counts["full disk: write done"] > 0
