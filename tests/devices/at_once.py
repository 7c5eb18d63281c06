"""An accelerator whose streams carry out all they are given at once, on the CPU.

It stands where CUDA would in `CudaDevice`, so that everything in the device but CUDA itself runs
without a GPU: routes, page numbers, contents, marks, both backends' arithmetic. It says nothing of
streams that overlap.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from hicache.memory.host import available_bytes
from hicache.memory.runs import Offsets, Rows


class Event:
    """Reached as soon as it is recorded, or where `late` says so, at the second time of asking."""

    def __init__(self, late: bool) -> None:
        self.late = late
        self.recorded = False

    def record(self, stream: Stream) -> None:
        self.recorded = True

    def query(self) -> bool:
        assert self.recorded
        late, self.late = self.late, False
        return not late

    def synchronize(self) -> None:
        assert self.recorded
        self.late = False

    def elapsed_time(self, other: Event) -> float:
        return 1.5


class Stream:
    def wait_event(self, event: Event) -> None:
        assert event.recorded


class AtOnce:
    """See the module. uploads: how many arrays were sent. rectangles: how many copies of rows.
    registered: host memory, by address."""

    def __init__(self, batches: bool = True, late: bool = False, refuses: int = 0) -> None:
        self.place = torch.device("cpu")
        self.batches = batches
        self.late = late
        self.refuses = refuses
        self.uploads = 0
        self.rectangles = 0
        self.registered: dict[int, int] = {}

    def stream(self) -> Stream:
        return Stream()

    def event(self, timed: bool) -> Event:
        return Event(self.late)

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        return nullcontext()

    def upload(self, words: NDArray[np.int64]) -> tuple[torch.Tensor, object]:
        self.uploads += 1
        return torch.from_numpy(words.copy()), words

    def download(self, rows: torch.Tensor) -> torch.Tensor:
        assert rows.is_contiguous()
        return rows.clone()

    def hold(self, stream: Stream, time_ns: int) -> None:
        assert time_ns >= 0

    def finish(self) -> None:
        """Nothing is ever under way."""

    def free(self) -> int:
        return available_bytes() or 1 << 40

    def register(self, address: int, size: int) -> int:
        if self.refuses and len(self.registered) >= self.refuses:
            return 2
        self.registered[address] = size
        return 0

    def unregister(self, address: int) -> int:
        del self.registered[address]
        return 0

    def refusal(self, code: int) -> str:
        return f"returned {code}; ask for fewer pages"

    def batch(self, targets: Offsets, sources: Offsets, lengths: Offsets) -> None:
        """Each copy must lie within one registration on the side that is one, as CUDA demands."""
        for target, source, length in zip(
            targets.tolist(), sources.tolist(), lengths.tolist(), strict=True
        ):
            self._check(target, length)
            self._check(source, length)
            ctypes.memmove(target, source, length)

    def batch_rows(self, targets: Offsets, sources: Offsets, length: int, rows: Rows) -> None:
        """As `batch`, with all rows of a copy in one registration."""
        self.rectangles += len(targets)
        for target, source in zip(targets.tolist(), sources.tolist(), strict=True):
            self._check(target, (rows.number - 1) * rows.target + length)
            self._check(source, (rows.number - 1) * rows.source + length)
            for number in range(rows.number):
                ctypes.memmove(target + number * rows.target, source + number * rows.source, length)

    def _check(self, address: int, length: int) -> None:
        for start, size in self.registered.items():
            if start <= address < start + size:
                assert address + length <= start + size, "a copy across two registrations"
