"""Page slots in one file: killed at every write, a journal cut at any byte, a mount that hangs."""

from __future__ import annotations

import os
import random
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hicache import registry
from hicache.core.errors import CallerError
from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, Storage, StorageOptions, Value
from hicache.storage.engines import pread
from hicache.storage.engines.base import ENGINES
from hicache.storage.journal import Journal
from hicache.storage.slots import Extents, Slots

SLOT = 4096
SIZE = 16 * SLOT


def opened(folder: Path, timeout_s: float = 30.0, query: str = "") -> Storage:
    options = StorageOptions(size_bytes=SIZE, timeout_s=timeout_s)
    return open_storage(parse(f"hf3fs:{folder}?slot={SLOT}{query}"), options)


def value(number: int, size: int) -> Value:
    return (memoryview(bytes([number]) * size),)


def read(store: Storage, key: str, size: int) -> tuple[Status, bytes]:
    target = bytearray(size)
    return store.read([key], [(memoryview(target),)])[0], bytes(target)


def test_a_journal_that_is_cut_anywhere_is_a_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    slots = Slots(SLOT, 16)
    journal = Journal(path, slots)
    journal.open()
    history = [dict(slots.sizes())]
    for number in range(6):
        reserved = slots.reserve(5000 + number, [])
        assert reserved is not None
        journal.append([(f"k{number}", reserved.value)], durable=False)
        slots.publish(f"k{number}", reserved.value)
        history.append(dict(slots.sizes()))
    slots.remove("k2")
    journal.append([("k2", None)], durable=True)
    history.append(dict(slots.sizes()))
    journal.close()
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        found = Slots(SLOT, 16)
        again = Journal(path, found)
        again.open()
        assert dict(found.sizes()) in history
        assert found.free == 16 - 2 * len(found.sizes())
        again.close()


def test_a_mount_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls end, and a late answer goes nowhere."""
    let_go = threading.Event()
    real = os.preadv

    def hanging(file: int, buffers: Any, offset: int) -> int:
        let_go.wait(30)
        return real(file, buffers, offset)

    store = opened(tmp_path, timeout_s=0.2)
    while store.write(["k"], [value(1, 5000)]) != [Status.DONE]:
        pass
    monkeypatch.setattr(pread.os, "preadv", hanging)
    target = bytearray(5000)
    assert store.read(["k"], [(memoryview(target),)]) == [Status.FAILED]
    assert store.lookup(["k"]) == [True]
    let_go.set()
    store.close()
    assert target == bytearray(5000)


def test_directories_that_do_not_fit(tmp_path: Path) -> None:
    used = opened(tmp_path / "used")
    with pytest.raises(CallerError, match="no other process uses"):
        opened(tmp_path / "used")
    used.close()
    with pytest.raises(CallerError, match=r"storage_size: expected 65,536 bytes"):
        open_storage(parse(f"hf3fs:{tmp_path / 'used'}"), StorageOptions(size_bytes=1 << 20))
    with pytest.raises(CallerError, match=r"storage_size: expected the size of a new file"):
        open_storage(parse(f"hf3fs:{tmp_path / 'new'}"), StorageOptions())
    assert not (tmp_path / "new").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal").write_text("a diary\n")
    with pytest.raises(CallerError, match="to be a journal of format 1, found another file"):
        opened(tmp_path / "other")
    (tmp_path / "file").touch()
    with pytest.raises(CallerError, match="expected a directory that we may write"):
        opened(tmp_path / "file")
    with pytest.raises(CallerError, match="engine: expected one of pread, usrbio, found 'aio'"):
        opened(tmp_path / "x", query="&engine=aio")
    with pytest.raises(CallerError, match=r"engine: expected what usrbio needs.*engine=pread"):
        opened(tmp_path / "x", query="&engine=usrbio")


def test_usrbio_is_called_as_its_interface_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for its package, which moves bytes with plain calls. It never ran on 3FS."""
    package, module = ModuleType("hf3fs_fuse"), ModuleType("hf3fs_fuse.io")

    class Ring:
        def __init__(self, mount: str, entries: int, for_read: bool, **_: Any) -> None:
            self.reads, self.queued = for_read, list[Any]()

        def prepare(self, block: Any, reads: bool, file: int, offset: int, userdata: Any) -> None:
            assert reads == self.reads
            self.queued.append((block, file, offset, userdata))

        def submit(self) -> Ring:
            return self

        def wait(self, min_results: int) -> list[Any]:
            ended = []
            for block, file, offset, userdata in reversed(self.queued[:min_results]):
                move = os.preadv if self.reads else os.pwritev
                result = move(file, [block], offset)
                ended.append(SimpleNamespace(userdata=userdata, result=result))
            self.queued.clear()
            return ended

    module.__dict__.update(
        register_fd=lambda file: None,
        deregister_fd=lambda file: None,
        extract_mount_point=lambda path: str(tmp_path),
        make_ioring=Ring,
        make_iovec=lambda shared, mount: shared.buf,
    )
    monkeypatch.setitem(sys.modules, "hf3fs_fuse", package)
    monkeypatch.setitem(sys.modules, "hf3fs_fuse.io", module)
    assert registry.summary(ENGINES, "usrbio")
    try:
        with closing(opened(tmp_path, query="&engine=usrbio")) as store:
            keys = [f"k{number}" for number in range(5)]
            values = [value(number, 3000 + 2000 * number) for number in range(5)]
            assert store.write(keys, values) == [Status.DONE] * 5
            assert [read(store, key, 3000 + 2000 * number) for number, key in enumerate(keys)] == [
                (Status.DONE, bytes(one)) for (one,) in values
            ]
    finally:
        sys.modules.pop("hicache.storage.engines.usrbio", None)


@pytest.mark.parametrize("seed", range(20))
def test_a_slot_is_of_one_value_until_its_last_reader_ends(seed: int) -> None:
    """Values that are being written, are stored or are being read share no slot, also with what is
    free, and none is lost."""
    draw = random.Random(seed)
    slots = Slots(1, 12)
    writing: list[tuple[str, Extents]] = []
    readers: list[tuple[ExitStack, list[Extents]]] = []
    for _ in range(300):
        key = draw.choice("abcdef")
        step = draw.choice(["write", "publish", "publish", "fail", "remove", "read", "read", "end"])
        old = None
        if step == "write":
            spare: list[int] = []
            reserved = slots.reserve(draw.randint(1, 5), spare)
            if reserved is not None and draw.random() < 0.3:
                slots.undo([reserved], spare)
            else:
                slots.give_spare(spare)
                writing += [(key, reserved.value)] if reserved is not None else []
        elif step in ("publish", "fail") and writing:
            new, value = writing.pop(draw.randrange(len(writing)))
            old = slots.publish(new, value) if step == "publish" else value
        elif step == "remove":
            old = slots.remove(key)
        elif step == "read":
            stack = ExitStack()
            found = stack.enter_context(slots.reading([key, draw.choice("abcdef")]))
            readers.append((stack, [one for one in found if one is not None]))
        elif readers:
            readers.pop(draw.randrange(len(readers)))[0].close()
        if old is not None:
            slots.give_back(old)
        held = [value for _, value in [*slots.records(), *writing]]
        held += [value for _, values in readers for value in values]
        used = [slot for value in {id(one): one for one in held}.values() for slot in value.slots()]
        assert len(used) == len(set(used)), f"after {step}: {sorted(used)}"
        assert len(used) + slots.free == slots.slots, f"after {step}: slots are lost"
    for stack, _ in readers:
        stack.close()


def test_values_whose_slots_come_back_are_as_cold_as_before() -> None:
    slots = Slots(1, 2)
    for key in "ab":
        found = slots.reserve(1, [])
        assert found is not None
        slots.publish(key, found.value)
    spare: list[int] = []
    large = slots.reserve(2, spare)
    assert large is not None
    slots.undo([large], spare)
    assert [key for key, _ in slots.records()] == ["a", "b"]


def test_a_key_that_goes_and_comes_again_at_once_is_there_when_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread writes it when its slots were chosen for a value."""
    real, begun, went_on = Slots.reserve, threading.Event(), threading.Event()

    def reserve(slots: Slots, size: int, spare: list[int]) -> Any:
        reserved = real(slots, size, spare)
        if reserved and reserved.gone and not begun.is_set():
            begun.set()
            went_on.wait(0.2)
        return reserved

    def again() -> None:
        begun.wait(30)
        store.write(["k0"], [value(1, SLOT)])
        went_on.set()

    monkeypatch.setattr(Slots, "reserve", reserve)
    thread = threading.Thread(target=again)
    with closing(opened(tmp_path)) as store:
        for number in range(16):
            store.write([f"k{number}"], [value(0, SLOT)])
        thread.start()
        store.write(["new"], [value(2, SLOT)])
        thread.join()
        known = store.lookup(["k0", "new"])
    with closing(opened(tmp_path)) as store:
        assert store.lookup(["k0", "new"]) == known == [True, True]
