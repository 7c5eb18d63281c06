"""Two real processes agree over gloo; where they would hang, both say at what."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from hicache.runtime.ranks import MissingRank
from tests.patience import PATIENCE_S

gloo_group = pytest.importorskip("hicache.runtime.gloo_group", exc_type=ImportError)


# The ranks are forks of one process, so that torch is loaded once.
_RANKS = """
import os, sys, traceback
program, folder, count = sys.argv[1:]
main = __import__(f"tests.runtime.{program}", fromlist=["main"]).main
started = []
for rank in range(int(count)):
    started.append(os.fork())
    if not started[-1]:
        sys.stdout = open(f"{folder}/said {rank}", "w", buffering=1)
        try:
            main(f"file://{folder}/meet", rank)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
print(*(os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in started))
"""


def said_by(program: str, folder: Path, count: int, ends: dict[int, int]) -> list[dict[str, Any]]:
    """What each of so many ranks printed last. ends: exit codes other than 0."""
    with subprocess.Popen(
        [sys.executable, "-c", _RANKS, program, str(folder), str(count)],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            codes, errors = started.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    assert codes.split() == [str(ends.get(rank, 0)) for rank in range(count)], errors
    said = [(folder / f"said {rank}").read_text().splitlines() for rank in range(count)]
    return [json.loads(lines[-1]) for lines in said]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks printed."""
    return said_by("gloo_rank", tmp_path_factory.mktemp("gloo"), 2, {})


def test_unequal_collectives_name_both_sides_on_both(ranks: list[dict[str, Any]]) -> None:
    for one in ranks:
        for key, sides in (
            ("purpose", ("minimum of 1 for purpose 0", "minimum of 1 for purpose 1")),
            ("count", ("minimum of 1 for count", "minimum of 101 for count")),
        ):
            text = str(one[key])
            assert text.startswith("COLL-SEQ: ")
            assert all(side in text for side in sides)


def test_a_rank_that_never_comes_is_an_error(ranks: list[dict[str, Any]]) -> None:
    assert "rank 0 waited in vain at collective" in str(ranks[0]["gone"])


def test_four_ranks_name_every_difference_and_hear_of_a_killed_rank(tmp_path: Path) -> None:
    ranks = said_by("gloo_lost", tmp_path, 4, {3: -signal.SIGKILL})
    assert all(one["differs"].startswith("page_size, write_policy: give") for one in ranks)
    for rank, one in enumerate(ranks[:3]):
        where = f"rank {rank} waited in vain at collective 3, minimum of 1 for a killed rank"
        assert where in one["lost"]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{}", "127.0.0.1", "file://{}/meet"])
def test_a_rank_that_does_not_meet_the_others_says_so_in_one_line(
    address: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        place = address.format(port if address.startswith("tcp") else tmp_path)
        with pytest.raises(MissingRank, match="rank 0 of 2 did not meet the others at") as found:
            gloo_group.join(place, 0, 2, timedelta(seconds=1))
    assert len(str(found.value).splitlines()) == 1
    assert found.value.exit_code == 2


def test_a_group_needs_a_process_group() -> None:
    with pytest.raises(CallerError, match="init_process_group"):
        gloo_group.GlooGroup()
