"""Two real processes agree over gloo; where they would hang, both say at what."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from tests.patience import PATIENCE_S

pytest.importorskip("torch.distributed", exc_type=ImportError)
gloo_group = pytest.importorskip("hicache.runtime.gloo_group", exc_type=ImportError)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """What each of two ranks printed."""
    address = f"file://{tmp_path_factory.mktemp('gloo') / 'meet'}"
    root = Path(__file__).resolve().parents[2]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.gloo_rank", address, str(rank)],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    found = []
    try:
        for one in started:
            out, errors = one.communicate(timeout=PATIENCE_S)
            assert one.returncode == 0, errors
            found.append(json.loads(out.splitlines()[-1]))
    finally:
        for one in started:
            one.kill()
    return found


@pytest.mark.one_in(8)
def test_both_ranks_get_the_same_results(ranks: list[dict[str, object]]) -> None:
    for one in ranks:
        assert one["minimum"] == [0, 4]
        assert one["minimum of many"] == 129
        assert one["conjunction"] == [6, 3 << 60]
        assert one["broadcast"] == 1129
        assert one["settings"] == [[8], [29]]


@pytest.mark.one_in(64)
def test_replies_come_when_both_ranks_have_them(
    ranks: list[dict[str, object]],
) -> None:
    """The pass failed on rank 1, the second backup on rank 0; rank 1 has the first at its end."""
    for one in ranks:
        assert one["replies"] == [[[3, False]], [], [[1, True], [2, False]]]


def test_unequal_collectives_name_both_sides_on_both(ranks: list[dict[str, object]]) -> None:
    for one in ranks:
        for key, sides in (
            ("purpose", ("minimum of 1 for purpose 0", "minimum of 1 for purpose 1")),
            ("count", ("minimum of 1 for count", "minimum of 101 for count")),
        ):
            text = str(one[key])
            assert text.startswith("COLL-SEQ: ")
            assert all(side in text for side in sides)


def test_a_rank_that_never_comes_is_an_error(ranks: list[dict[str, object]]) -> None:
    assert "rank 0 waited in vain at collective" in str(ranks[0]["gone"])


def test_a_group_needs_a_process_group() -> None:
    with pytest.raises(CallerError, match="init_process_group"):
        gloo_group.GlooGroup()
