"""The suite of every file in hicache/storage/backends, against real servers on this machine."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import pytest

from hicache.storage.address import schemes
from hicache.storage.base import Status, Storage, listening
from hicache.storage.breaker import Breaker, BreakerOptions
from tests.servers import S3_PAGE
from tests.storage import histories
from tests.storage.mediums import Fault, Subject

from .rigs_stores import CONTEXT, MIB, Rig, blank, drawn, joined, keys_of, started, value_of
from .test_store_outages import disk_hangs, stopped

NAMES = schemes()
LISTED = 1100  # values: more than a page of Redis and of the index of files


@pytest.fixture(scope="session", params=NAMES)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One server of each kind for each process of pytest, for the tests that do not harm it."""
    with started(request.param, tmp_path_factory.mktemp(request.param)) as rig:
        yield rig


@pytest.fixture(scope="session")
def store(rig: Rig) -> Iterator[Storage]:
    with closing(rig.open()) as storage:
        yield storage


@dataclass
class Guarded(Subject):
    """The store of a rig, behind a breaker. It hangs at times, but for `file:`, which has no
    time-out."""

    rig: Rig = field(kw_only=True)

    def open(self, hasty: bool = False) -> Storage:
        timeout_s = 0.3 if hasty else 30.0
        rules = BreakerOptions(patience_s=0.9 * timeout_s, first_pause_s=0.05, longest_pause_s=0.2)
        return Breaker(self.rig.open(timeout_s), "store", time.monotonic, lambda _: None, rules)


def test_a_drawn_history(rig: Rig, tmp_path: Path) -> None:
    """Of two clients, of values that are spoilt where they lie, and of a store that hangs and comes
    back, again and again."""

    def make(folder: Path, _: random.Random) -> Subject:
        address = f"{rig.scheme}:{folder / 'store'}"
        item = rig if rig.server else Rig(rig.scheme, f"{address}?size={MIB}")
        hangs = stopped(0) if rig.server else disk_hangs
        hung = Fault("hung", lambda _: hangs(item, folder), hangs=True)
        subject = Guarded(address, 0 if rig.server else MIB, None, rig=item)
        subject.faults = [hung] if rig.scheme != "file" else []
        subject.pages, subject.misses = (3, 5), rig.scheme != "s3"
        subject.weights = (9, 9, 3, 1, 3, 3, 0, 2, 3)
        return subject

    assert histories.play(make, tmp_path, 7)["histories"] == 1


def test_a_batch_may_be_empty_or_have_a_key_twice(store: Storage) -> None:
    assert store.lookup([]) == store.read([], []) == store.write([], []) == store.delete([]) == []
    keys = [key for key in keys_of("again", 12) for _ in range(2)]
    values = [value_of(drawn(number, 300)) for number in range(24)]
    with listening() as heard:
        assert store.write(keys, values) == [Status.DONE] * 24, heard
    views = [blank(value) for value in values]
    assert store.read(keys, views) == [Status.DONE] * 24
    assert joined(views[::2]) == joined(views[1::2]) == joined(values[1::2]), "the last one stays"


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
    with listening() as heard:
        assert store.read(keys, views) == left
        assert Status.FAILED not in store.delete(keys)
    assert not heard, "what is missing is no fault to tell of"


@pytest.mark.parametrize("rig", ["s3"], indirect=True)
def test_a_folder_of_a_bucket_may_begin_with_a_slash(rig: Rig) -> None:
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


def test_a_list_longer_than_a_page_is_deleted_while_it_is_read(rig: Rig, store: Storage) -> None:
    keys = keys_of("listed", S3_PAGE + 50 if rig.scheme == "s3" else LISTED)
    assert store.write(keys, [value_of(bytes(8))] * len(keys)) == [Status.DONE] * len(keys)
    listed, gone = store.entries(f"{CONTEXT}/listed/"), list[str]()
    while batch := [entry.key for entry in islice(listed, 64)]:
        assert store.delete(batch) == [Status.DONE] * len(batch)
        gone += batch
    assert sorted(gone) == keys
    assert list(store.entries(f"{CONTEXT}/listed/")) == []


def test_use_after_close_fails_and_closing_twice_does_not(rig: Rig, tmp_path: Path) -> None:
    own = rig if rig.server else replace(rig, address=f"{rig.scheme}:{tmp_path}?size={MIB}")
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
