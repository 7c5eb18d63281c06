"""Two real processes agree over gloo; where they would hang, both say at what."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hicache.clock import Clock
from hicache.core.errors import CallerError
from hicache.runtime.group import MissingRank
from tests.patience import PATIENCE_S

dist = pytest.importorskip("torch.distributed", exc_type=ImportError)
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


def test_four_ranks_name_every_difference_and_a_killed_rank(tmp_path: Path) -> None:
    ranks = said_by("gloo_lost", tmp_path, 4, {3: -signal.SIGKILL})
    for one in ranks:
        assert one["differs"].startswith("page_size, write_policy: expected the same")
        assert "page_size 4 on ranks 0, 1 and 3, 8 on rank 2; " in one["differs"]
        assert "'write_back' on rank 3; give" in one["differs"]
    for rank, one in enumerate(ranks[:3]):
        assert one["missing"] == [3]
        assert "rank 3 ended, or does not answer" in one["lost"]
        where = f"rank {rank} waited in vain at collective 7, minimum of 1 for a killed rank"
        assert where in one["lost"]
        assert "collective 6 is the last that all agreed on" in one["lost"]


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    second = timedelta(seconds=1)
    with pytest.raises(MissingRank, match="ranks 1 and 2 did not come to file://") as found:
        gloo_group.join(f"file://{tmp_path / 'meet'}", 0, 3, second)
    assert found.value.missing == (1, 2)
    assert found.value.exit_code == 2


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("wait_s", [0.1, 1.0, 5.0, 20.0, 300.0])
def test_who_is_missing_is_found_out_within_the_wait(
    wait_s: float, rank: int, tmp_path: Path
) -> None:
    """A collective ends early enough to ask, and the others to leave. Rank 0, which may have the
    store, asks for longer than the others, which still read it."""
    collective_s, find_s, leave_s = gloo_group.parts(wait_s)
    assert min(collective_s, find_s, leave_s) > 0
    assert collective_s + find_s + leave_s == pytest.approx(wait_s)
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    place = tmp_path / "meet"
    others = dist.FileStore(str(place), 3)
    for one in {0, 1, 2} - {rank}:
        others.set(f"size/{one}", "3")
    clock, wait = Clock(lambda: now_s[0], sleep), timedelta(seconds=wait_s)
    meeting = gloo_group.Meeting(f"file://{place}", rank, 3, wait, clock)
    assert meeting.timeout.total_seconds() == pytest.approx(collective_s)
    assert now_s[0] == 0
    others.set(f"lost/{1 - rank}", "7")
    assert meeting.missing(7) == [2]
    least_s = find_s if rank else find_s + leave_s / 2
    assert -1e-9 < now_s[0] - least_s < 0.02


def test_a_store_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """Rank 0 has it, so it is missing."""
    place = tmp_path / "meet"
    dist.FileStore(str(place), 2).set("size/0", "2")
    meeting = gloo_group.Meeting(f"file://{place}", 1, 2, timedelta(seconds=0.1))
    answers = threading.Event()

    class Hangs:
        def set(self, key: str, value: str) -> None:
            """It needs no answer."""

        def check(self, keys: list[str]) -> bool:
            return answers.wait()

    meeting.store = Hangs()
    assert meeting.missing(7) == [0]
    answers.set()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tcp://127.0.0.1:{}", "a port that is in use; give another"),
        ("127.0.0.1", "expected tcp://HOST:PORT or file://PATH"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(address: str, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(CallerError, match=told) as found:
            gloo_group.join(address.format(port), 0, 2, timedelta(seconds=1))
    assert len(str(found.value).splitlines()) == 1


def test_a_group_needs_a_process_group() -> None:
    with pytest.raises(CallerError, match="init_process_group"):
        gloo_group.GlooGroup()
