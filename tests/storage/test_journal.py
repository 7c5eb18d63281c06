"""A damaged journal: no more values are lost than lines are damaged, and the store says so."""

from __future__ import annotations

import errno
import os
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage.address import open_storage, open_store, parse
from hicache.storage.base import Status, StorageOptions
from hicache.storage.journal import Journal
from hicache.storage.verified import Verified

SLOT = 4096
SIZE = 120 * SLOT
KEYS = [f"{'c' * 64}/kv/0of1/{number:064x}" for number in range(12)]


def opened(folder: Path) -> Verified:
    address = parse(f"hf3fs:{folder}?slot={SLOT}")
    return Verified(open_storage(address, StorageOptions(size_bytes=SIZE, timeout_s=30)))


Damages = Callable[[bytes], Iterator[tuple[str, bytes, int]]]  # what, the journal, damaged lines


def value(number: int, version: int) -> bytes:
    return bytes([number, version]) * (700 + 1500 * number)


def filled(folder: Path) -> dict[str, set[bytes]]:
    """A folder with a history, and what may be read of each key: a value that it had."""
    had: dict[str, set[bytes]] = {}
    with closing(opened(folder)) as store:
        for version in range(3):
            for number in range(0, 12, version + 1):
                text = value(number, version)
                done = store.write([KEYS[number]], [(memoryview(text),)])
                assert done == [Status.DONE]
                had.setdefault(KEYS[number], set()).add(text)
        store.delete([KEYS[5]])
        store.write([KEYS[7], KEYS[8]], [(memoryview(value(7, 9)),), (memoryview(value(8, 9)),)])
        had[KEYS[7]].add(value(7, 9))
        had[KEYS[8]].add(value(8, 9))
    return had


def served(store: Verified) -> dict[str, bytes]:
    """What the store serves; a look at the size of each value first."""
    found = {}
    for entry in store.entries(""):
        into = bytearray(entry.size_bytes - 64)
        if store.read([entry.key], [(memoryview(into),)]) == [Status.DONE]:
            found[entry.key] = bytes(into)
    return found


def flipped(text: bytes) -> Iterator[tuple[str, bytes, int]]:
    """One bit of every third byte of the heads, and of some of the other bytes."""
    head, drawn = len(text.splitlines(keepends=True)[0]), random.Random(7)
    for at in [*range(0, 2 * head, 3), *range(2 * head, len(text), 29)]:
        bit = 1 << drawn.randrange(8)
        spoilt = bytes([text[at] ^ bit])
        damaged = 2 if spoilt == b"\n" else 1
        yield f"bit {bit} of byte {at}", text[:at] + spoilt + text[at + 1 :], damaged


def changed_lines(change: Callable[[bytes], bytes], damaged: int) -> Damages:
    def damages(text: bytes) -> Iterator[tuple[str, bytes, int]]:
        lines = text.splitlines(keepends=True)
        for number in range(len(lines)):
            spoilt = [*lines[:number], change(lines[number]), *lines[number + 1 :]]
            yield f"line {number}", b"".join(spoilt), damaged

    return damages


DAMAGES: dict[str, Damages] = {
    "flipped": flipped,
    "doubled": changed_lines(lambda line: line + line, 0),
    "cut in the middle": changed_lines(lambda line: line[: len(line) // 2] + b"\n", 1),
    "without its end": changed_lines(lambda line: line[:-1], 1),
    "missing": changed_lines(lambda line: b"", 1),
    "zeros": changed_lines(lambda line: bytes(len(line)), 1),
    "garbage": changed_lines(lambda line: b"\xff[{\n\n\x00" + line[5:], 3),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_no_more_values_are_lost_than_lines_are_damaged(tmp_path: Path, kind: str) -> None:
    had = filled(tmp_path)
    journal = tmp_path / "journal"
    text, data = journal.read_bytes(), (tmp_path / "data").read_bytes()
    with closing(opened(tmp_path)) as store:
        before = served(store)
    assert len(before) >= 8
    for what, spoilt, damaged in DAMAGES[kind](text):
        journal.write_bytes(spoilt)
        (tmp_path / "data").write_bytes(data)
        (tmp_path / "journal.damaged").unlink(missing_ok=True)
        with closing(opened(tmp_path)) as store:
            after = served(store)
            lost = [key for key, one in before.items() if after.get(key) != one]
            assert len(lost) <= damaged, f"{what}: {lost}"
            assert all(one in had[key] for key, one in after.items()), what
            if lost and kind != "missing":
                assert int(store.stats()["damaged_lines"]) >= 1, what
                assert (tmp_path / "journal.damaged").read_bytes() == spoilt, what
            assert store.write(["new"], [(memoryview(b"x" * 900),)]) == [Status.DONE]
        with closing(opened(tmp_path)) as store:  # what was repaired stays
            assert served(store).items() >= {"new": b"x" * 900}.items()
            assert store.stats()["damaged_lines"] == 0, what


def test_damage_is_told_once(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = tmp_path / "journal"
    text = bytearray(journal.read_bytes())
    text[len(text) // 3] ^= 1
    journal.write_bytes(text)
    notices: list[str] = []
    address, options = parse(f"hf3fs:{tmp_path}?slot={SLOT}"), StorageOptions(size_bytes=SIZE)
    for _ in range(2):
        open_store(address, options, lambda: 0.0, notices.append).close()
    assert len(notices) == 1
    assert "1 line of the journal was damaged" in notices[0]
    assert "journal.damaged" in notices[0]


def test_a_journal_whose_only_head_is_damaged_says_that(tmp_path: Path) -> None:
    """Journals of older versions have one."""
    filled(tmp_path)
    journal = tmp_path / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[1:]))
    opened(tmp_path).close()
    assert journal.read_bytes().splitlines(keepends=True)[:2] == lines[:1] * 2
    journal.write_bytes(b"x" + b"".join(lines[1:])[1:])
    with pytest.raises(CallerError, match="found one whose first line is damaged"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "record",
    ['["k",5]', '["k",5,[[0,1,2]]]', '["k",5,[[0,999]]]', '["k",5,[[-1,1]]]', '["k",9999,[[0,1]]]'],
)
def test_a_record_that_makes_no_sense_is_skipped(tmp_path: Path, record: str) -> None:
    filled(tmp_path)
    with (tmp_path / "journal").open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(record.encode()), record.encode()))
    with closing(opened(tmp_path)) as store:
        assert store.stats()["damaged_lines"] == 1
        assert store.lookup(["k"]) == [False]


def test_writing_the_journal_anew_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write that makes the journal too long is in the new one, and what it deletes is not."""
    monkeypatch.setattr("hicache.storage.journal._SPARE", 5)
    with closing(opened(tmp_path)) as store:
        for step in range(60):
            key = KEYS[step % 4]
            if step % 7 == 6:
                store.delete([key])
            else:
                store.write([key], [(memoryview(bytes([step]) * 500),)])
            found = served(store)
            with_journal = (tmp_path / "journal").read_bytes()
            copy = tmp_path / f"copy{step}"
            copy.mkdir()
            (copy / "journal").write_bytes(with_journal)
            (copy / "data").write_bytes((tmp_path / "data").read_bytes())
            with closing(opened(copy)) as again:
                assert served(again) == found


def test_a_journal_that_was_cut_on_a_full_disk_goes_on_behind_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(journal: Journal) -> None:
        raise OSError(errno.ENOSPC, "no room")

    filled(tmp_path)
    path = tmp_path / "journal"
    os.truncate(path, path.stat().st_size - 3)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_write_anew", full)
        with closing(opened(tmp_path)) as store:
            text = memoryview(value(3, 7))
            assert store.write([KEYS[3]], [(text,)]) == [Status.DONE]
    with closing(opened(tmp_path)) as store:
        assert store.store.troubles() == ""
        assert served(store)[KEYS[3]] == text
