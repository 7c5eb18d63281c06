"""Addresses of stores that a person mistyped, or whose server is not there: one line each."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage.address import (
    in_folder,
    locate,
    open_storage,
    parse,
    shown,
    with_query,
)
from hicache.storage.base import Status, StorageOptions
from tests.contract.rigs_stores import usable


@pytest.fixture
def nobody() -> Iterator[str]:
    """HOST:PORT that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """HOST:PORT that takes connections and never answers."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield f"127.0.0.1:{one.getsockname()[1]}"


def refusal(address: str, options: StorageOptions | None = None) -> str:
    usable(parse(address).scheme)  # without, the message is another one (see test_address)
    with pytest.raises(CallerError) as error:
        open_storage(parse(address), options or StorageOptions(timeout_s=0.2))
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("scheme", ["redis", "mooncake"])
def test_nobody_listens(scheme: str, nobody: str) -> None:
    assert refusal(f"{scheme}://{nobody}") == (
        f"storage: expected a server at {scheme}://{nobody}, found: Connection refused; "
        "start it, or one to try out (docs/storage_backends.md)"
    )


def test_no_s3(nobody: str, silent: str) -> None:
    keys = "access_key=a&secret_key=b"
    for server in (nobody, silent):
        assert "found no answer" in refusal(f"s3://kvcache?endpoint=http://{server}&{keys}")
    assert "bucket of 3 to 63" in refusal("s3://kv?endpoint=http://x")
    assert "bucket of 3 to 63" in refusal("s3://kvcache/folder")
    assert "expected endpoint=http://HOST:PORT" in refusal("s3://kvcache?endpoint=x")


def test_a_server_that_does_not_answer(silent: str) -> None:
    found = refusal(f"redis://{silent}")
    assert "no answer in time" in found
    assert "password" not in found, "it was not even asked for one"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("redis://h:1/x", "the database 'x'"),
        ("redis://h:99999/0", "another form of redis:"),
        ("redis://h:1/0?x=1", "expected redis://HOST:PORT/DB without a query, found 'x'"),
        ("mooncake://h:1?segment=much", "found 'much'"),
        ("mooncake://h:1?metrics=-1", "found '-1'"),
        ("hf3fs://host/folder", "expected hf3fs:DIR"),
        ("hf3fs:d?size=0", "found '0'"),
        ("file:d?size=much", "file: size: expected bytes such as 4096"),
        ("file:d?size=1M&size=2M", "expected each name once, found ?size=1M&size=2M"),
        ("file:d?sise=5GB", "with ?size, durable alone, found 'sise'"),
        ("file:d?durable=1", "expected durable=yes or no, found '1'"),
        ("file:what?", "%3F for a ?"),
        ("file:what?/now", "%3F for a ?"),
    ],
)
def test_mistyped_addresses(address: str, found: str) -> None:
    assert found in refusal(address)


@pytest.mark.parametrize("scheme", ["redis", "mooncake", "s3"])
def test_options_that_a_server_cannot_follow(scheme: str) -> None:
    sized = refusal(f"{scheme}://somewhere", StorageOptions(size_bytes=5000))
    assert sized.startswith(f"storage_size: expected none with {scheme}:, found 5,000; ")
    if scheme != "s3":
        durable = refusal(f"{scheme}://somewhere", StorageOptions(durable=True))
        assert durable.startswith(f"storage_durable: expected none with {scheme}:; ")


@pytest.mark.parametrize("scheme", ["file", "hf3fs"])
def test_the_address_of_a_folder_has_settings(scheme: str, tmp_path: Path) -> None:
    folder, keys = tmp_path / "100% of #1, or?", [f"c/kv/0of1/{number:064x}" for number in range(4)]
    text = str(folder).replace("%", "%25").replace("?", "%3F")
    address = f"{scheme}:{text}?size=128Ki&durable=yes"
    with closing(open_storage(parse(address), StorageOptions())) as store:
        for key in keys:
            assert store.write([key], [(memoryview(bytes(60_000)),)]) == [Status.DONE]
        assert store.lookup(keys) == [False, False, True, True]
    assert list(tmp_path.iterdir()) == [folder]
    two = refusal(address, StorageOptions(size_bytes=1 << 20))
    assert "expected one size, found 1,048,576 bytes and size=128Ki in the address" in two
    where = in_folder(parse(address))
    assert with_query(StorageOptions(), where) == StorageOptions(128 << 10, durable=True)
    assert with_query(StorageOptions(durable=True), in_folder(parse(f"{scheme}:x"))).durable


def test_a_password_is_in_no_message(nobody: str) -> None:
    assert "secret" not in refusal(f"redis://user:secret@{nobody}/0")
    s3 = parse("s3://kvcache?access_key=me&secret_key=secret/=&region=here")
    assert shown(s3) == "s3://kvcache?access_key=me&secret_key=&region=here"
    found = locate(parse("redis://u:p%40@h:7/2"), port=1, known=(), form="redis:")
    assert found[1:6] == ("h", 7, "u", "p@", "/2")
    assert found.server == "h:7"


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("507 Insufficient Storage: ", Status.FULL),
        ("400 Bad Request: <Error><Code>QuotaExceeded</Code></Error>", Status.FULL),
        ("500 Internal Error: the number 507", Status.FAILED),
    ],
)
def test_a_full_store_is_told_by_its_answer_alone(message: str, status: Status) -> None:
    usable("s3")
    from hicache.storage.backends.s3 import Refused, _status

    assert _status(Refused(message)) is status
    assert _status(OSError("507")) is Status.FAILED
