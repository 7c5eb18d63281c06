"""What is stored is there after kill -9, byte for byte, and nothing else is ever served.

Each backend that can be started here: the file backend, 3FS over a folder, Redis, S3, Mooncake.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hicache.storage.base import Status
from hicache.storage.checksummed import Checksummed
from tests.contract.rigs_stores import Rig, blank, drawn, keys_of, started, value_of
from traces.cli import main

from .playing import GOLDEN, HERE, replayed, turns

SCHEMES = ("file", "hf3fs", "redis", "s3", "mooncake")
PROMISED = 12
REPLAY = (
    *("--mode", "hits", "--check", "off", "--prefetch", "wait_complete:0"),
    *("--device-pages", "999", "--host-pages", "999"),
)
_WRITER = """
import sys
from hicache.storage.base import Status
from hicache.storage.checksummed import Checksummed
from tests.contract.rigs_stores import Rig, drawn, keys_of, value_of
store = Checksummed(Rig(*sys.argv[1:]).open(30.0))
keys, number = keys_of("killed", 200), 0
while True:
    value = value_of(drawn(number % 200, 3000), 100)
    assert store.write([keys[number % 200]], [value]) == [Status.DONE]
    number += 1
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> str:
    return turns(tmp_path_factory.mktemp("turns"), 3, 3)


@pytest.fixture(scope="module", params=SCHEMES)
def rig(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Rig]:
    with started(request.param, tmp_path_factory.mktemp(request.param)) as rig:
        yield rig


def test_what_a_killed_writer_was_promised_is_there(rig: Rig) -> None:
    command = [sys.executable, "-c", _WRITER, rig.scheme, rig.address]
    with subprocess.Popen(command, cwd=HERE.parents[1], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        promised = [writer.stdout.readline() for _ in range(PROMISED)][-1]
        writer.send_signal(signal.SIGKILL)
    assert int(promised) == PROMISED
    with closing(Checksummed(rig.open(30.0))) as store:
        for number, key in enumerate(keys_of("killed", PROMISED + 1)):
            value = value_of(drawn(number, 3000), 100)
            result = blank(value)
            (status,) = store.read([key], [result])
            assert status is Status.DONE or number == PROMISED
            assert result == value or status is not Status.DONE


def test_a_replay_on_a_store_is_warm_after_one_that_was_killed(
    rig: Rig, conversations: str, tmp_path: Path
) -> None:
    """The second replay hits in the store what the first one stored before it was killed. A third
    one, of another precision, is refused: its pages are not these."""
    address = rig.address.partition("?size")[0]
    if rig.scheme == "hf3fs":  # one size for each folder; values stand for pages
        address = f"{address}-warm?size=64GB"
    words = [*REPLAY, "--storage", address]
    with subprocess.Popen(
        [sys.executable, "-m", "hicache", "replay", conversations, *words, "--json", "-"],
        cwd=HERE.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as first:
        assert first.stdout is not None
        first.stdout.read(1)  # the last pages may still be on their way
        first.send_signal(signal.SIGKILL)
    assert replayed(tmp_path, conversations, *words)["hit_tokens"]["storage"] > 0
    assert main(["replay", conversations, *words, "--kv-dtype", "fp8"]) == 2
    assert main(["store", "check", address]) == 0


def test_pages_have_the_keys_and_the_bytes_that_they_had(
    conversations: str, tmp_path: Path
) -> None:
    """So what this version stored is warm for the next one."""
    address = f"file:{tmp_path / 'store'}"
    replayed(tmp_path, conversations, *REPLAY, "--storage", address)
    digest = sha256()
    with closing(Rig("file", address).open()) as store:
        for entry in sorted(store.entries("")):
            value = memoryview(bytearray(entry.size_bytes))
            assert store.read([entry.key], [(value,)]) == [Status.DONE]
            digest.update(entry.key.encode() + value)
    assert digest.hexdigest()[:32] == GOLDEN["stored"]
    again = replayed(tmp_path, conversations, *REPLAY, "--storage", address)
    assert again["hit_tokens"] == GOLDEN["warm"]
