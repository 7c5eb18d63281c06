"""Four real processes over gloo, one of which is killed; two that agree are in tests/golden."""

import json
import signal
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.runtime.ranks import MissingRank
from tests.traces.rig import python

SIZE = 4
gloo_group = pytest.importorskip("hicache.runtime.gloo_group", exc_type=ImportError)


def test_ranks_name_every_difference_and_hear_of_a_killed_rank(tmp_path: Path) -> None:
    done = python("-m", "tests.runtime.gloo_rank", f"file://{tmp_path}/meet", "lost", check=True)
    *lines, codes = map(json.loads, done.stdout.splitlines())
    assert codes == [0, 0, 0, -signal.SIGKILL]
    assert sorted(line["rank"] for line in lines) == [*range(SIZE)]
    for result in lines:
        rank = result["rank"]
        assert result["differs"].startswith("page_size, write_policy: give")
        where = f"rank {rank} waited in vain at collective 3, minimum of 1 for a killed rank"
        assert rank == SIZE - 1 or where in result["lost"]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{}", "127.0.0.1", "file://{}/meet"])
def test_a_rank_that_does_not_meet_the_others_says_so_in_one_line(
    address: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        place = address.format(port if address.startswith("tcp") else tmp_path)
        with pytest.raises(MissingRank, match="rank 0 of 2 did not meet the others at") as error:
            gloo_group.join(place, 0, 2, timedelta(seconds=1))
    assert len(str(error.value).splitlines()) == 1
    assert error.value.exit_code == 2


def test_a_group_needs_a_process_group() -> None:
    with pytest.raises(CallerError, match="init_process_group"):
        gloo_group.GlooGroup()
