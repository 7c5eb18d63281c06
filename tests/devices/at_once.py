"""An accelerator whose streams carry out all they are given at once, on the CPU.

It stands where CUDA would in `CudaDevice`, so that everything in the device but CUDA itself runs
without a GPU: routes, page numbers, contents, events, both backends' arithmetic, and which thread
makes a call after which. It says nothing of streams that overlap.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from hicache.memory.host import available_bytes
from hicache.memory.runs import Offsets, Rows


class Event:
    """Reached as soon as it is recorded, or where `late` says so, at the second time of asking.

    CUDA takes an event that was not recorded as reached: here that is a failure."""

    def __init__(self, owner: AtOnce) -> None:
        self.owner = owner
        self.late = owner.late
        self.recorded = False

    def record(self, stream: Stream | None = None) -> None:
        self.owner.called("record")
        self.recorded = True

    def query(self) -> bool:
        assert self.recorded, "an event is asked before it is recorded"
        late, self.late = self.late, False
        return not late

    def synchronize(self) -> None:
        assert self.recorded, "the host waits for an event before it is recorded"
        self.late = False

    def elapsed_time(self, other: Event) -> float:
        assert self.recorded
        assert other.recorded
        return 1.5


class Stream:
    def __init__(self, owner: AtOnce) -> None:
        self.owner = owner

    def wait_event(self, event: Event) -> None:
        self.owner.called("wait")
        assert event.recorded, "a stream waits for an event before it is recorded"


class AtOnce:
    """See the module. uploads: how many arrays were sent. rectangles: how many copies of rows.
    registered: host memory, by address.

    calls: the calls for streams, each by name, and whether it came from the thread that made this.
    door: what every batch of copies goes through, by default open."""

    def __init__(self, batches: bool = True, late: bool = False) -> None:
        self.place = torch.device("cpu")
        self.batches = batches
        self.late = late
        self.uploads = 0
        self.rectangles = 0
        self.registered: dict[int, int] = {}
        self.calls: list[tuple[str, bool]] = []
        self.door = threading.Event()
        self.door.set()
        self._maker = threading.get_ident()
        self._attached = {self._maker}

    def attach(self) -> None:
        self._attached.add(threading.get_ident())

    def called(self, name: str) -> None:
        own = threading.get_ident()
        assert own in self._attached, "a thread without a context of CUDA"
        self.calls.append((name, own == self._maker))

    def stream(self) -> Stream:
        return Stream(self)

    def event(self, timed: bool) -> Event:
        return Event(self)

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        return nullcontext()

    def upload(self, words: NDArray[np.int64]) -> tuple[torch.Tensor, object]:
        self.called("upload")
        self.uploads += 1
        return torch.from_numpy(words.copy()), words

    def download(self, rows: torch.Tensor) -> torch.Tensor:
        assert rows.is_contiguous()
        return rows.clone()

    def finish(self) -> None:
        """Nothing is ever under way."""

    def free(self) -> int:
        return available_bytes() or 1 << 40

    def register(self, address: int, size: int) -> int:
        self.registered[address] = size
        return 0

    def unregister(self, address: int) -> int:
        del self.registered[address]
        return 0

    def refusal(self, code: int) -> str:
        return f"returned {code}; ask for fewer pages"

    def batch(self, targets: Offsets, sources: Offsets, lengths: Offsets) -> None:
        """Each copy must lie within one registration on the side that is one, as CUDA demands."""
        self._pass()
        for target, source, length in zip(
            targets.tolist(), sources.tolist(), lengths.tolist(), strict=True
        ):
            self._check(target, length)
            self._check(source, length)
            ctypes.memmove(target, source, length)

    def batch_rows(self, targets: Offsets, sources: Offsets, length: int, rows: Rows) -> None:
        """As `batch`, with all rows of a copy in one registration."""
        self._pass()
        self.rectangles += len(targets)
        for target, source in zip(targets.tolist(), sources.tolist(), strict=True):
            self._check(target, (rows.number - 1) * rows.target + length)
            self._check(source, (rows.number - 1) * rows.source + length)
            for number in range(rows.number):
                ctypes.memmove(target + number * rows.target, source + number * rows.source, length)

    def _pass(self) -> None:
        self.called("copies")
        assert self.door.wait(5), "nobody opened the door"

    def _check(self, address: int, length: int) -> None:
        for start, size in self.registered.items():
            if start <= address < start + size:
                assert address + length <= start + size, "a copy across two registrations"
