"""Executors of storage: at once (`ImmediateStore`), or in virtual time (`TimedStore`).

An executor answers each `Lookup`, `Fetch`, `Store` and `Delete` once. It asks `Contents` for the
status of each value and moves the bytes of the simulated host. Answers are pages from the front:

    lookup   the largest n at which every component has what a boundary after n pages requires
    fetch    the largest n such that every page less than n pages behind the first has arrived
    store    how many leading pages are durable

In virtual time a lookup and a delete take the latency of the store. A fetch and a store move their
values through the pipe of their direction; a value is read when it has moved, and written when its
batch has moved. `abandon` ends a lookup at once with nothing, and a fetch or store with what has
moved. A store that hangs answers only what is abandoned.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from hicache.core.actions import Delete, Fetch, Lookup, Piece, StorageAction, Store
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.core.types import Key, Tier, TransferId
from hicache.storage.base import Losses, Status

from ..clock import Timer
from ..content import Words, draw
from ..device.memory import Memory
from .contents import MILLION, Contents, StoreOptions

_SECOND_NS = 1_000_000_000
_SLOWER = 10
Ended: TypeAlias = Callable[[int], None]


class PageBytes:
    """The bytes of host pages. A value's content is that of the prefix with its digest, so a page
    stored under another digest is found here, and one fetched into the wrong place when it is read.
    memory: None if the run keeps no bytes; then nothing happens here."""

    def __init__(self, memory: Memory | None) -> None:
        self._memory = memory
        self._tags: dict[bytes, int] = {}

    def announce(self, key: Key, tags: Words) -> None:
        """Tells the tags of the pages of a key, before any of them is stored or fetched."""
        if self._memory is not None:
            self._tags.update(zip(key.page_digests(), tags.tolist(), strict=True))

    def check(self, piece: Piece) -> None:
        """Compares the host pages that are stored with their digests. Raises WrongBytesError."""
        if self._memory is not None and len(piece.digests):
            why = f"store of {piece.component} from page {piece.first_page}"
            tags, layers = self._tagged(piece.digests), (0, self._memory.layers)
            self._memory.verify((Tier.HOST, piece.component), piece.pages, tags, layers, why)

    def fill(self, piece: Piece, statuses: Sequence[Status]) -> None:
        """Writes the content of the values that have arrived into their host pages."""
        arrived = [place for place, status in enumerate(statuses) if status is Status.DONE]
        if self._memory is None or not arrived:
            return
        place, pages = (Tier.HOST, piece.component), piece.pages[arrived]
        tags = self._tagged([piece.digests[index] for index in arrived])
        why = f"fetch of {piece.component} from page {piece.first_page}"
        layers = 0, self._memory.layers
        self._memory.claim(place, pages, tags, layers)
        self._memory.write(place, pages, tags, layers, why)

    def _tagged(self, digests: Sequence[bytes]) -> Words:
        return np.array([self._tags[digest] for digest in digests], dtype=np.uint64)


def _within(pieces: Sequence[Piece], values: int) -> list[tuple[Piece, int]]:
    """Each piece, and how many of its pages are among the first `values` of all."""
    parts = []
    for piece in pieces:
        taken = min(values, len(piece.digests))
        parts.append((piece, taken))
        values -= taken
    return parts


def values(action: Fetch | Store) -> int:
    """How many values the action moves."""
    return sum(len(piece.digests) for piece in action.pieces)


@dataclass(slots=True)
class Moved:
    """What a store did: values by component and status, in each direction. losses: of actions that
    it did not answer."""

    read: dict[str, Counter[Status]] = field(default_factory=dict)
    written: dict[str, Counter[Status]] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)


class StoreExecutor:
    """See the module. components: in the order of the configuration. listener: called when a reply
    is ready."""

    def __init__(
        self, contents: Contents, components: Sequence[str], page_bytes: PageBytes
    ) -> None:
        self.contents = contents
        self.moved = Moved()
        self.page_bytes = page_bytes
        self.listener: Callable[[], None] = lambda: None
        self._components = tuple(components)
        self._open: dict[TransferId, StorageAction] = {}
        self._replies: list[StorageReply] = []

    @property
    def unanswered(self) -> int:
        """Number of submitted actions whose reply was not taken yet."""
        return len(self._open) + len(self._replies)

    def is_unanswered(self, transfer: TransferId) -> bool:
        """Whether the action was submitted and its reply was not taken yet."""
        return transfer in self._open or any(reply.transfer == transfer for reply in self._replies)

    def submit(self, action: StorageAction) -> None:
        self._open[action.transfer] = action

    def start(self) -> None:
        """Begin what is queued. Nothing waits for it here."""

    def poll(self) -> list[StorageReply]:
        """The replies that are ready, in the order in which they became so."""
        replies, self._replies = self._replies, []
        return replies

    def abandon(self, transfer: TransferId) -> None:
        """Nobody waits for this transfer any more: answer soon."""

    def close(self) -> None:
        self.contents.close()

    def _answer(self, reply: StorageReply) -> None:
        if self._open.pop(reply.transfer, None) is not None:
            self._replies.append(reply)
            self.listener()

    def _lose(self, action: StorageAction) -> None:
        """The answer of a store that is not there."""
        losses = self.moved.losses
        if type(action) is Lookup:
            losses.lookups_unanswered += len(action.digests)
        elif type(action) is Fetch:
            losses.reads_failed += values(action)
        elif type(action) is Store:
            losses.writes_refused += values(action)
        self._fail(action)

    def _fail(self, action: StorageAction) -> None:
        """Answer an action of which nothing is done."""
        replies: dict[type, Any] = {Lookup: LookupDone, Fetch: FetchDone, Store: StoreDone}
        reply = replies.get(type(action), partial(DeleteDone, ok=False))
        self._answer(reply(action.transfer))

    def _perform(self, action: StorageAction, moved: int) -> None:
        """moved: how many values of a fetch or a store have moved."""
        if type(action) is Lookup:
            self._answer(LookupDone(action.transfer, self._looked_up(action)))
        elif type(action) is Fetch:
            self._answer(FetchDone(action.transfer, self._fetched(action, moved)))
        elif type(action) is Store:
            self._answer(StoreDone(action.transfer, self._stored(action, moved)))
        elif type(action) is Delete:
            self._answer(DeleteDone(action.transfer, self.contents.clear()))

    def _looked_up(self, action: Lookup) -> int:
        there: list[tuple[int, list[bool | None]]] = []
        for place, (name, trailing) in enumerate(
            zip(self._components, action.trailing_pages, strict=True)
        ):
            known = action.known_pages if place == 0 else 0
            rest = self.contents.lookup(name, action.digests[known:])
            there.append((trailing, [*[True] * known, *rest]))
        for pages in range(len(action.digests), 0, -1):
            first = [max(0, pages - trailing) if trailing else 0 for trailing, _ in there]
            if all(all(item[start:pages]) for start, (_, item) in zip(first, there, strict=True)):
                return pages
        return 0

    def _fetched(self, action: Fetch, moved: int) -> int:
        missing = []
        for piece, taken in _within(action.pieces, moved):
            statuses = self.contents.read(piece.component, piece.digests[:taken])
            self.page_bytes.fill(piece, statuses)
            self.moved.read.setdefault(piece.component, Counter()).update(statuses)
            done = [status is Status.DONE for status in statuses] + [False]
            if (place := done.index(False)) < len(piece.digests):
                missing.append(piece.first_page + place)
        if not missing:
            return action.pages
        return min(action.pages, max(0, min(missing) - action.first_page))

    def _stored(self, action: Store, moved: int) -> int:
        done: list[bool] = []
        for piece, taken in _within(action.pieces, moved):
            self.page_bytes.check(piece)
            statuses = self.contents.write(piece.component, piece.digests[:taken])
            self.moved.written.setdefault(piece.component, Counter()).update(statuses)
            done += [status is Status.DONE for status in statuses]
            if taken < len(piece.digests):
                break
        return [*done, False].index(False)


class ImmediateStore(StoreExecutor):
    """Without a clock: every action ends at the next poll. For replays that count hits."""

    def poll(self) -> list[StorageReply]:
        for action in list(self._open.values()):
            moves = type(action) is Fetch or type(action) is Store
            self._perform(action, values(action) if moves else 0)  # type: ignore[arg-type]
        return super().poll()


@dataclass(slots=True, eq=False)
class _Batch:
    """ends: bytes up to the end of each value. factor: how many times as long it takes."""

    transfer: TransferId
    ends: list[int]
    ready_ns: int
    factor: int
    ended: Ended
    began_ns: int = -1
    over: bool = False


class Pipe:
    """One direction between a store and host memory: batches, one after the other, in virtual time.

    The bytes of a batch begin to move `latency_ns` after it was sent, or when the batch before it
    has moved, whichever is later. All batches together move at the rate of the direction. A batch
    that is cut short ends at once with the values that have moved whole.

    bytes, busy_ns: of the batches that ended, and of what had moved of those
    that were cut.
    """

    def __init__(self, clock: Timer, bytes_per_s: int, latency_ns: int) -> None:
        self._clock = clock
        self._rate = bytes_per_s
        self._latency_ns = latency_ns
        self._queue: deque[_Batch] = deque()
        self._current: _Batch | None = None
        self.bytes = 0
        self.busy_ns = 0

    def send(
        self, transfer: TransferId, sizes: Sequence[int], ended: Ended, factor: int = 1
    ) -> None:
        """Queues a batch of values. ended: called with the number of values that have moved."""
        ready_ns = self._clock.now_ns + self._latency_ns * factor
        batch = _Batch(transfer, list(accumulate(sizes)), ready_ns, factor, ended)
        self._queue.append(batch)
        if self._current is None:
            self._next()

    def cut(self, transfer: TransferId) -> bool:
        """Ends a batch now. False if it is not here."""
        batch = self._current
        if batch is not None and batch.transfer == transfer:
            self._end(batch, self._moved(batch))
            return True
        for batch in self._queue:
            if batch.transfer == transfer:
                self._queue.remove(batch)
                batch.ended(0)
                return True
        return False

    def _moved(self, batch: _Batch) -> int:
        """How many values of a batch have moved by now."""
        elapsed_ns = self._clock.now_ns - batch.began_ns
        if elapsed_ns < 0:
            return 0
        reached = elapsed_ns * self._rate // (_SECOND_NS * batch.factor)
        return sum(end <= reached for end in batch.ends)

    def _next(self) -> None:
        if not self._queue:
            return
        batch = self._current = self._queue.popleft()
        batch.began_ns = max(self._clock.now_ns, batch.ready_ns)
        total = batch.ends[-1] if batch.ends else 0
        lasts_ns = -(-total * _SECOND_NS * batch.factor // self._rate)
        wait_ns = batch.began_ns + lasts_ns - self._clock.now_ns
        self._clock.after(wait_ns, lambda: self._end(batch, len(batch.ends)))

    def _end(self, batch: _Batch, values: int) -> None:
        if batch.over:
            return
        batch.over = True  # its planned end, if that comes later, finds it ended
        self.bytes += batch.ends[values - 1] if values else 0
        self.busy_ns += max(0, self._clock.now_ns - batch.began_ns)
        self._current = None
        self._next()
        batch.ended(values)


class TimedStore(StoreExecutor):
    """In virtual time. value_bytes: of one value, by component."""

    def __init__(
        self,
        clock: Timer,
        options: StoreOptions,
        contents: Contents,
        value_bytes: Mapping[str, int],
        page_bytes: PageBytes,
    ) -> None:
        super().__init__(contents, tuple(value_bytes), page_bytes)
        self._clock = clock
        self._options = options
        self._value_bytes = value_bytes
        self.reads = Pipe(clock, options.read_bytes_per_s, options.latency_ns)
        self.writes = Pipe(clock, options.write_bytes_per_s, options.latency_ns)
        self._hung: dict[TransferId, StorageAction] = {}
        self._batches = 0

    def submit(self, action: StorageAction) -> None:
        super().submit(action)
        factor = self._factor()
        if type(action) is Fetch or type(action) is Store:
            pipe = self.reads if type(action) is Fetch else self.writes
            sizes = [
                self._value_bytes[piece.component] for piece in action.pieces for _ in piece.digests
            ]
            pipe.send(action.transfer, sizes, lambda moved: self._ended(action, moved), factor)
        else:
            self._clock.after(self._options.latency_ns * factor, lambda: self._ended(action, 0))

    def abandon(self, transfer: TransferId) -> None:
        action = self._open.get(transfer)
        if action is None or type(action) is Delete:
            return
        if self._hung.pop(transfer, None) is not None:
            self._lose(action)
        elif type(action) is Lookup:
            self._fail(action)
        elif not self.reads.cut(transfer):
            self.writes.cut(transfer)

    def _factor(self) -> int:
        """How many times as long this batch takes."""
        if not self._options.slow:
            return 1
        self._batches += 1
        slow = draw(MILLION, self._options.seed, "slow", self._batches) < self._options.slow
        return _SLOWER if slow else 1

    def _ended(self, action: StorageAction, moved: int) -> None:
        """If the store is dead, the action fails; if it hangs, it waits."""
        if action.transfer not in self._open:
            return
        now_ns = self._clock.now_ns
        if self._options.hangs(now_ns):
            self._hung[action.transfer] = action
            if self._options.back_at_ns > now_ns:
                self._clock.after(self._options.back_at_ns - now_ns, lambda: self._woken(action))
        elif self._options.is_dead(now_ns):
            self._lose(action)
        else:
            self._perform(action, moved)

    def _woken(self, action: StorageAction) -> None:
        if self._hung.pop(action.transfer, None) is not None:
            self._lose(action)
