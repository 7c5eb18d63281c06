"""The suite of every file in hicache/storage/backends, against real servers on this machine."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from hicache.storage.address import schemes
from hicache.storage.base import Status, Storage

from .rigs_stores import CONTEXT, MIB, Rig, blank, drawn, joined, keys_of, started, value_of

NAMES = schemes()
LISTED = 1100  # values: more than a page of S3, of Redis and of the index of files


@pytest.fixture(scope="session", params=NAMES)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One server of each kind for each process of pytest, for the tests that do not harm it."""
    with started(request.param, tmp_path_factory.mktemp(request.param)) as rig:
        yield rig


@pytest.fixture(scope="session")
def store(rig: Rig) -> Iterator[Storage]:
    with closing(rig.open()) as storage:
        yield storage


def test_values_in_scattered_buffers_come_back(store: Storage) -> None:
    memory = memoryview(bytearray(drawn(0, MIB)))
    keys = keys_of("scattered", 5)
    values = [
        value_of(drawn(1, 5000), 1, 64, 64, 4097),
        (memoryview(bytearray(drawn(2, 64))), memory[4096 : 4096 + 65536]),
        (memory[:100], memory[200_000:200_001], memory[500_000:700_000]),
        (memoryview(drawn(3, 777)),),  # read-only
        value_of(drawn(4, 5000), *range(2, 5000, 2)),  # more than a call of the system takes
    ]
    assert store.lookup(keys) == [False] * 5
    assert store.write(keys, values) == [Status.DONE] * 5
    assert store.lookup(keys) == [True] * 5
    views = [blank(value) for value in values]
    target = memoryview(bytearray(MIB))
    views[1] = (views[1][0], target[1000:66536])
    assert store.read(keys, views) == [Status.DONE] * 5
    assert joined(views) == joined(values)
    cut = [value_of(bytes(len(text)), len(text) // 3) for text in joined(values)]
    assert store.read(keys, cut) == [Status.DONE] * 5
    assert joined(cut) == joined(values)


def test_a_key_that_is_written_again_has_one_of_the_values_whole(store: Storage) -> None:
    [key] = keys_of("again", 1)
    old, new = value_of(drawn(4, 9000), 100), value_of(drawn(5, 9000), 8000)
    assert store.write([key], [old]) == [Status.DONE]
    assert store.write([key], [new]) == [Status.DONE]
    views = blank(new)
    assert store.read([key], [views]) == [Status.DONE]
    assert joined([views]) == joined([new])
    other = value_of(drawn(6, 300))
    assert store.write([key, key], [other, other]) == [Status.DONE] * 2
    short = blank(other)
    assert store.read([key], [short]) == [Status.DONE]
    assert joined([short]) == joined([other])


def test_missing_values_and_wrong_lengths_leave_the_others_alone(store: Storage) -> None:
    keys = keys_of("partial", 5)
    values = [value_of(drawn(number, 4096), 64) for number in range(5)]
    assert store.write(keys[:4], values[:4]) == [Status.DONE] * 4
    assert store.lookup(keys) == [True] * 4 + [False]
    views = [blank(value) for value in values]
    views[1] = value_of(bytes(4095))
    views[2] = value_of(bytes(4097), 64)
    assert store.read(keys, views) == [
        *(Status.DONE, Status.CORRUPT, Status.CORRUPT, Status.DONE, Status.MISSING)
    ]
    assert joined([views[0], views[3]]) == joined([values[0], values[3]])
    assert store.delete([keys[1], keys[4]])[0] is Status.DONE
    assert store.lookup(keys) == [True, False, True, True, False]
    assert store.read(keys[1:2], views[:1]) == [Status.MISSING]
    assert store.delete(keys)[2:4] == [Status.DONE] * 2
    assert store.lookup(keys) == [False] * 5


def test_big_batches_and_big_values(store: Storage) -> None:
    keys = keys_of("many", 100)
    values = [value_of(drawn(number, 3000 + number), 64) for number in range(100)]
    keys += keys_of("big", 2)
    values += [value_of(bytes([1]) * (9 * MIB + 1), 64, 5 * MIB), value_of(drawn(7, MIB), 64)]
    assert store.write(keys, values) == [Status.DONE] * 102
    assert store.lookup(keys) == [True] * 102
    views = [blank(value) for value in values]
    assert store.read(keys, views) == [Status.DONE] * 102
    assert joined(views) == joined(values)
    assert store.delete(keys[::3]) == [Status.DONE] * 34
    left = [Status.MISSING, Status.DONE, Status.DONE] * 34
    assert store.read(keys, views) == left
    assert Status.FAILED not in store.delete(keys)


def test_empty_batches(store: Storage) -> None:
    assert store.lookup([]) == []
    assert store.read([], []) == store.write([], []) == store.delete([]) == []


def test_a_folder_of_a_bucket_may_begin_with_a_slash(tmp_path: Path) -> None:
    with started("s3", tmp_path) as rig:
        inside = replace(rig, address=f"{rig.address}&prefix=/a%20team/")
        with closing(inside.open()) as store:
            [key], value = keys_of("folder", 1), value_of(drawn(5, 100))
            assert store.write([key], [value]) == store.read([key], [value]) == [Status.DONE]
            assert [each.key for each in store.entries(CONTEXT)] == [key]


def test_entries_have_the_prefix(store: Storage) -> None:
    keys = [*keys_of("entries", 5), *keys_of("entriesx", 1)]
    values = [value_of(bytes(100 + number)) for number in range(6)]
    assert store.write(keys, values) == [Status.DONE] * 6
    prefix = f"{CONTEXT}/entries/"
    entries = sorted(store.entries(prefix))
    assert [(entry.key, entry.size_bytes) for entry in entries] == [
        (key, 100 + number) for number, key in enumerate(keys[:5])
    ]
    assert all(entry.used_at_s >= 0 for entry in entries)
    assert list(store.entries("nothing/of/this*")) == []
    assert isinstance(store.stats(), dict)


def test_a_list_longer_than_a_page_is_deleted_while_it_is_read(store: Storage) -> None:
    keys = keys_of("listed", LISTED)
    status = store.write(keys, [value_of(bytes(8))] * LISTED)
    assert status == [Status.DONE] * LISTED
    listed, gone = store.entries(f"{CONTEXT}/listed/"), list[str]()
    while batch := [entry.key for entry in islice(listed, 256)]:
        assert store.delete(batch) == [Status.DONE] * len(batch)
        gone += batch
    assert sorted(gone) == keys
    assert list(store.entries(f"{CONTEXT}/listed/")) == []


def test_use_after_close_fails_and_closing_twice_does_not(rig: Rig, tmp_path: Path) -> None:
    own = rig if rig.server else replace(rig, address=f"{rig.scheme}:{tmp_path}")
    store = own.open()
    [key] = keys_of("closed", 1)
    value = value_of(bytes(50))
    assert store.write([key], [value]) == [Status.DONE]
    store.close()
    store.close()
    assert store.lookup([key]) == [None]
    assert store.read([key], [value]) == [Status.FAILED]
    assert store.write([key], [value]) == store.delete([key]) == [Status.FAILED]


def test_threads_at_a_time(store: Storage) -> None:
    wrong: list[object] = []

    def use(number: int) -> None:
        keys = keys_of(f"thread{number}", 8)
        for again in range(4):
            values = [value_of(drawn(again + index, 20_000), 64) for index in range(8)]
            views = [blank(value) for value in values]
            done = [store.write(keys, values), store.read(keys, views)]
            if done != [[Status.DONE] * 8] * 2 or joined(views) != joined(values):
                wrong.append(done)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("scheme", [name for name in NAMES if name != "s3"])
def test_a_full_store_says_so_or_evicts(scheme: str, tmp_path: Path) -> None:
    """What was evicted after a lookup is missing when it is read. moto, the S3 server of these
    tests, cannot be bounded."""
    with started(scheme, tmp_path, 24 * MIB) as rig, closing(rig.open()) as store:
        keys = keys_of("full", 40)
        values = [value_of(drawn(number, MIB), 64) for number in range(40)]
        assert store.write(keys[:1], values[:1]) == [Status.DONE]
        assert store.lookup(keys[:1]) == [True]
        for start in range(1, 40, 3):
            end = min(start + 3, 40)
            done = store.write(keys[start:end], values[start:end])
            assert set(done) <= {Status.DONE, Status.FULL}
        views = [blank(value) for value in values]
        statuses = store.read(keys, views)
        assert set(statuses) == {Status.DONE, Status.MISSING}
        for status, item, value in zip(statuses, views, values, strict=True):
            assert status is Status.MISSING or joined([item]) == joined([value])
