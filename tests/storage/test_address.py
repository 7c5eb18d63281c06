"""Addresses: what a person types, and what a wrong one is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage import address
from hicache.storage.base import Address, StorageOptions
from hicache.storage.breaker import Breaker


@pytest.fixture
def backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
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
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(address, "BACKENDS", package.name)
    yield package.name
    for module in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[module]


@pytest.mark.parametrize(
    ("text", "scheme", "rest"),
    [
        ("file:cache", "file", "cache"),
        ("file:./a b", "file", "./a b"),
        ("FILE:/x:y", "file", "/x:y"),
        ("redis://127.0.0.1:6379/0", "redis", "//127.0.0.1:6379/0"),
        (
            "s3://bucket?endpoint=http://127.0.0.1:9000",
            "s3",
            "//bucket?endpoint=http://127.0.0.1:9000",
        ),
    ],
)
def test_an_address_is_a_scheme_and_a_rest(text: str, scheme: str, rest: str) -> None:
    assert address.parse(text) == Address(scheme, rest)


@pytest.mark.parametrize(
    "text", ["", "file", "file:", ":x", "./dir", "a/b", "fi le:x", "file:a\nb"]
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        CallerError, match="storage: expected SCHEME:REST such as file:DIR, found"
    ) as no:
        address.parse(text)
    assert "\n" not in str(no.value)


def test_a_folder_without_a_scheme_is_told_what_to_write() -> None:
    with pytest.raises(CallerError, match=r"for a folder write file:\./dir"):
        address.parse("./dir")


def test_an_unknown_scheme_names_the_known_ones(backends: str) -> None:
    with pytest.raises(
        CallerError, match="expected one of extra, plain, found 'plane'; did you mean"
    ):
        address.open_storage(address.parse("plane:x"), StorageOptions())


def test_a_missing_package_is_told_with_the_command_that_installs_it(backends: str) -> None:
    with pytest.raises(CallerError, match=r"pip install 'hicache\[extra\]'") as caught:
        address.open_storage(address.parse("extra:x"), StorageOptions())
    assert "a_package_that_nobody_has" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_library_of_the_system_is_named_and_pip_is_not(
    backends: str, tmp_path: Path
) -> None:
    found = "libibverbs.so.1: cannot open shared object file: No such file or directory"
    (tmp_path / backends / "extra.py").write_text(f"raise ImportError({found!r})")
    with pytest.raises(CallerError, match=f"found: {found}; the package is there") as caught:
        address.open_storage(address.parse("extra:x"), StorageOptions())
    assert "pip" not in str(caught.value)


def test_a_store_is_opened_with_checks_and_a_guard(backends: str) -> None:
    said: list[str] = []
    store = address.open_store(
        address.parse("plain:here"), StorageOptions(), lambda: 0.0, said.append
    )
    assert isinstance(store.store, Breaker)
    assert store.store.store == (Address("plain", "here"), StorageOptions())  # type: ignore[comparison-overlap]
    assert said == ["storage: plain:here: 3 lines are damaged"]
