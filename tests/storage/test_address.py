"""Addresses: what a person types, and what a wrong one, or one of no server, is told: one line."""

import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from hicache.storage import address
from hicache.storage.address import in_folder, locate, open_storage, parse, shown
from hicache.storage.base import Address, Status, StorageOptions
from hicache.storage.breaker import Breaker
from tests.contract.rigs_stores import usable


@pytest.fixture
def backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "backends_of_tests"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plain.py").write_text(
        "class Opened(tuple):\n"
        "    def troubles(self):\n"
        "        return '3 lines are damaged'\n\n\n"
        "def open_storage(address, options):\n"
        "    return Opened((address, options))\n"
    )
    (package / "extra.py").write_text("import a_package_that_nobody_has\n")
    text = "libibverbs.so.1: cannot open shared object file"
    (package / "system.py").write_text(f"raise ImportError({text!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(address, "BACKENDS", package.name)
    yield package
    for module in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[module]


@pytest.fixture
def nobody() -> Iterator[str]:
    """HOST:PORT that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{item.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """HOST:PORT that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def refusal(text: str) -> str:
    with pytest.raises(CallerError) as error:
        open_storage(parse(text), StorageOptions(timeout_s=0.2))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_address_is_a_scheme_and_a_rest() -> None:
    for text, scheme, rest in (
        ("file:./a b", "file", "./a b"),
        ("FILE:/x:y", "file", "/x:y"),
        ("s3://b?endpoint=http://h:9000", "s3", "//b?endpoint=http://h:9000"),
    ):
        assert parse(text) == Address(scheme, rest)
    for text in ("", "file", "file:", ":x", "a/b", "fi le:x", "file:a\nb"):
        assert "storage: expected SCHEME:REST such as file:DIR, found" in refusal(text)
    assert "for a folder write file:./dir" in refusal("./dir")


def test_a_scheme_that_is_unknown_or_not_installed(backends: Path) -> None:
    assert "expected one of extra, plain, system, found 'plane'; did you" in refusal("plane:x")
    assert "a_package_that_nobody_has" in refusal("extra:x")
    assert "pip install 'hicache[extra]'" in refusal("extra:x")
    result = refusal("system:x")
    assert "found: libibverbs.so.1: cannot open shared object file; the package is there" in result
    assert "pip" not in result


def test_a_store_is_opened_with_checks_and_a_guard(backends: Path) -> None:
    texts: list[str] = []
    store = address.open_store(parse("plain:here"), StorageOptions(), lambda: 0.0, texts.append)
    assert isinstance(store.store, Breaker)
    assert store.store.store == (Address("plain", "here"), StorageOptions())  # type: ignore[comparison-overlap]
    assert texts == ["storage: plain:here: 3 lines are damaged"]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("redis://{nobody}", "a server at redis://{nobody}, found: Connection refused; start it"),
        ("mooncake://{nobody}", "a server at mooncake://{nobody}, found: Connection refused"),
        ("redis://{silent}", "gives no answer in time; is it a Redis that runs?"),
        ("s3://kvcache?endpoint=http://{nobody}&access_key=a&secret_key=b", "found no answer"),
        ("s3://kvcache?endpoint=http://{silent}&access_key=a&secret_key=b", "found no answer"),
        ("s3://kv?endpoint=http://x", "bucket of 3 to 63"),
        ("s3://kvcache/folder", "bucket of 3 to 63"),
        ("s3://kvcache?endpoint=x", "expected endpoint=http://HOST:PORT"),
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
        ("file://localhost/d", "expected file:DIR"),
        ("file:what?", "%3F for a ?"),
        ("file:what?/now", "%3F for a ?"),
    ],
)
def test_mistyped_addresses_and_servers_that_are_not_there(
    text: str, result: str, nobody: str, silent: str
) -> None:
    usable(parse(text).scheme)
    assert result.format(nobody=nobody) in refusal(text.format(nobody=nobody, silent=silent))


@pytest.mark.parametrize("scheme", ["redis", "mooncake", "s3"])
@pytest.mark.parametrize("name", ["size", "durable"])
def test_settings_that_a_server_cannot_follow(scheme: str, name: str) -> None:
    usable(scheme)
    assert f", found '{name}'" in refusal(f"{scheme}://somewhere?{name}=5000")


@pytest.mark.parametrize("scheme", ["file", "hf3fs"])
def test_the_address_of_a_folder_has_settings(scheme: str, tmp_path: Path) -> None:
    folder, keys = tmp_path / "100% of #1, or?", [f"c/kv/0of1/{number:064x}" for number in range(4)]
    text = str(folder).replace("%", "%25").replace("?", "%3F")
    text = f"{scheme}:{text}?size=128Ki&durable=yes"
    with closing(open_storage(parse(text), StorageOptions())) as store:
        for key in keys:
            assert store.write([key], [(memoryview(bytes(60_000)),)]) == [Status.DONE]
        assert store.lookup(keys) == [False, False, True, True]
    assert list(tmp_path.iterdir()) == [folder]
    assert in_folder(parse(text), StorageOptions())[:3] == (str(folder), 128 << 10, True)
    assert in_folder(parse(f"{scheme}:x"), StorageOptions())[:3] == ("x", 0, False)


def test_a_password_is_in_no_message(nobody: str) -> None:
    assert "secret" not in refusal(f"redis://user:secret@{nobody}/0")
    s3 = parse("s3://kvcache?access_key=me&secret_key=secret/=&region=here")
    assert shown(s3) == "s3://kvcache?access_key=me&secret_key=&region=here"
    location = locate(parse("redis://u:p%40@h:7/2"), port=1, known=(), form="redis:")
    assert location[1:6] == ("h", 7, "u", "p@", "/2")


@pytest.mark.parametrize("value", [0, float("nan"), float("inf"), True, "1", 1e9])
def test_a_time_out_of_range(value: Any) -> None:
    with pytest.raises(CallerError, match="expected") as caught:
        StorageOptions(value)
    assert "\n" not in str(caught.value)
