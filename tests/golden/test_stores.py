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

from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, Storage, StorageOptions
from hicache.storage.checksummed import Checksummed
from tests.contract.rigs_stores import started
from traces.cli import main

from .playing import GOLDEN, HERE, replayed, turns

SCHEMES = ("file", "hf3fs", "redis", "s3", "mooncake")
CONTEXT = "c" * 64
PROMISED, SIZE, BOUND = 12, 3000, 64 << 20
REPLAY = (
    *("--mode", "hits", "--check", "off", "--prefetch", "wait_complete:0"),
    *("--device-pages", "999", "--host-pages", "999"),
)
_WRITER = """
import sys
from tests.golden.test_stores import Status, key_of, opened, value_of
store, number = opened(sys.argv[1]), 0
while True:
    assert store.write([key_of(number % 200)], [value_of(number % 200)]) == [Status.DONE]
    number += 1
    print(number, flush=True)
"""


def raw(address: str) -> Storage:
    size = BOUND if address.startswith("hf3fs:") else 0
    return open_storage(parse(address), StorageOptions(size_bytes=size, timeout_s=30))


def opened(address: str) -> Checksummed:
    return Checksummed(raw(address))


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> str:
    return turns(tmp_path_factory.mktemp("turns"), 3, 3)


def key_of(number: int) -> str:
    return f"{CONTEXT}/kv/0of1/{number:064x}"


def value_of(number: int) -> tuple[memoryview, ...]:
    text = sha256(str(number).encode()).digest() * (SIZE // 32)
    return memoryview(text[:100]), memoryview(text[100:])


def blank(number: int = 0) -> tuple[memoryview, ...]:
    return tuple(memoryview(bytearray(part.nbytes)) for part in value_of(number))


@pytest.fixture(scope="module", params=SCHEMES)
def address(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[str]:
    with started(request.param, tmp_path_factory.mktemp(request.param)) as rig:
        yield rig.address


def test_what_a_killed_writer_was_promised_is_there(address: str) -> None:
    command = [sys.executable, "-c", _WRITER, address]
    with subprocess.Popen(command, cwd=HERE.parents[1], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        promised = [writer.stdout.readline() for _ in range(PROMISED)][-1]
        writer.send_signal(signal.SIGKILL)
    assert int(promised) == PROMISED
    with closing(opened(address)) as store:
        for number in range(PROMISED + 1):
            result = blank()
            (status,) = store.read([key_of(number)], [result])
            if number < PROMISED:
                assert status is Status.DONE
            if status is Status.DONE:
                assert result == value_of(number)


def test_a_replay_on_a_store_is_warm_after_one_that_was_killed(
    address: str, conversations: str, tmp_path: Path
) -> None:
    """The second replay hits in the store what the first one stored before it was killed. A third
    one, of another precision, is refused: its pages are not these."""
    if address.startswith("hf3fs:"):  # one size for each folder; values stand for pages
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
    with closing(raw(address)) as store:
        for entry in sorted(store.entries("")):
            value = memoryview(bytearray(entry.size_bytes))
            assert store.read([entry.key], [(value,)]) == [Status.DONE]
            digest.update(entry.key.encode() + value)
    assert digest.hexdigest()[:32] == GOLDEN["stored"]
    again = replayed(tmp_path, conversations, *REPLAY, "--storage", address)
    assert again["hit_tokens"] == GOLDEN["warm"]
