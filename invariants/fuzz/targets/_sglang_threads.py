"""SGLang's storage threads, which stand still until one of them is told to work one item.

Real are the functions of the threads and the order of their queues. A step is what a real thread
may do between two looks of the scheduler; a read of one batch is not interrupted within. Hashes of
pages are computed by hashlib, so that no compiler is needed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from queue import Empty
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from sglang.srt.managers import cache_controller

from invariants.fuzz.target import Broken

BATCH = 2  # pages of one call of the store; SGLang's own number is 128
# Each queue of the controller that a thread of its own works, and the name of that thread.
THREADS = {
    "prefetch_queue": "prefetch_thread",
    "prefetch_buffer": "prefetch_io_aux_thread",
    "prefetch_sync_queue": "prefetch_sync_thread",
    "backup_queue": "backup_thread",
}


def stand_still() -> None:
    """The threads of a controller that is made from now on wait for their steps; it is one process
    of one rank."""
    cache_controller.Queue = Items
    cache_controller.threading = SimpleNamespace(Thread=Worker, Event=threading.Event)
    cache_controller.STORAGE_BATCH_SIZE = BATCH
    cache_controller.is_dp_attention_enabled = bool
    ranks = dict.fromkeys(("tp_rank", "pp_rank", "attn_dcp_rank"), 0)
    sizes = dict.fromkeys(("tp_size", "pp_size", "attn_dcp_size"), 1)
    cache_controller.get_parallel = Ranks(**ranks, **sizes).own
    native_hash: Any = import_module("sglang.srt.mem_cache.cpp_utils.native_hash")
    native_hash._load_native_hash_module = Hashes


class Hashes:
    """Stands in for SGLang's compiled hashes of pages, and gives the same."""

    def get_hash(
        self, raw: Any, count: int, width: int, bigram: bool, prior: bytes | None, page: int | None
    ) -> Any:
        tokens = np.asarray(raw, "<u4")
        if bigram:
            tokens = np.stack([tokens[:count], tokens[1 : count + 1]], 1).reshape(-1)
        data, step = tokens[: count * width].tobytes(), 4 * width * (page or max(count, 1))
        found = list[str]()
        for at in range(0, len(data), step):
            digest = sha256((prior or b"") + data[at : at + step])
            prior = digest.digest()
            found.append(digest.hexdigest())
        return found if page else (found or [sha256(prior or b"").hexdigest()])[0]


class Ranks(SimpleNamespace):
    """This process among others: there are none."""

    def own(self) -> Ranks:
        return self


class Waits(BaseException):
    """A thread would wait for its next item: its step ends."""


class Items:
    """Stands in for queue.Queue. count: the items that were ever put. noted: called with each."""

    def __init__(self) -> None:
        self.queue = deque[Any]()
        self.count = 0
        self.noted: Callable[[Any], None] | None = None

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def put(self, item: Any, *_: Any, **__: Any) -> None:
        if item is not None:  # None only wakes a thread
            self.queue.append(item)
            self.count += 1
            if self.noted is not None:
                self.noted(item)

    put_nowait = put

    def qsize(self) -> int:
        return len(self.queue)

    def empty(self) -> bool:
        return not self.queue

    def get(self, *_: Any, **__: Any) -> Any:
        if Worker.left is not None:
            if not Worker.left:
                raise Waits
            Worker.left -= 1
        if not self.queue:
            raise Empty
        return self.queue.popleft()


class Worker:
    """Stands in for threading.Thread: runs only when it is told to, and for one item."""

    left: ClassVar[int | None] = None  # items that the worker at work may still take

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self.target = target

    def start(self) -> None: ...

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float = 0) -> None:
        """It was told to stop, and ends as its function does then."""
        self.step(1 << 30)

    def step(self, items: int = 1) -> None:
        Worker.left = items
        try:
            self.target()
        except Waits:
            pass
        except Exception as error:
            name = self.target.__name__
            text = f"{name} ends for good with {error!r}, so nothing works its queue any more"
            raise Broken("CRASH", text, "a thread of the store ends") from error
        finally:
            Worker.left = None
