"""A storage with real bytes: the threads of the runtime carry out drawn actions on host pools in
memory and a small store in a folder of its own, beside others that write, read and delete, on a
medium that may be full. The store is away, its probes and calls hang, actions are
given up at any call, and it is detached and attached again.

What a page holds follows from its pool and digest. So a page that was fetched has its bytes; an
action counts the values that were read or written, and no others; what was stored is there, or is
counted as evicted; losses are those of the answers; nothing fails while nothing is wrong; and what
was away is asked again.
"""

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import fields, replace
from functools import partial
from hashlib import blake2b
from itertools import count, islice, product, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from hicache.core.actions import Delete, Fetch, Lookup, Piece, StorageAction, Store
from hicache.core.components import residency
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.types import Tier
from hicache.memory.layouts import LAYOUTS
from hicache.memory.pools import Arena, StoredPool, stored_pools
from hicache.models import ModelDescription, described
from hicache.runtime.driver import Driver
from hicache.runtime.ranks import offered
from hicache.runtime.storage import Attachment, Rank, StorageExecutor, StoredPages, WorkerOptions
from hicache.storage import file_index
from hicache.storage.address import open_storage, parse, with_size
from hicache.storage.backends import hf3fs
from hicache.storage.base import Losses, Status, StorageOptions
from hicache.storage.breaker import Breaker
from hicache.storage.checksummed import Checksummed
from hicache.storage.file_index import BLOCK
from hicache.storage.keys import Context, context_key
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.player import SimulatedStore, WrongContent
from sim.errors import StuckError

PATIENCE_S = 60.0  # for a thread, which takes milliseconds
STEPS = 10
DIGESTS = [bytes([number]) * 32 for number in range(16)]  # of the pages of these
MOST = 5  # pages of one of these
SIZES = {"file": (0, 3, 6, 16, 40), "hf3fs": (3, 6, 16, 40)}  # by store: units of 4096 bytes
HUNG_S = 100.0  # of a call that hangs: more than the breaker and the threads wait
SPARE = 8 * BLOCK  # of the disk, for what it keeps beside the values
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
NOTICES = AWAY, BACK, NO_WRITES, _ = "not answer", "answers again", "no writes", "writes again"
_CALLS = ("lookup", "read", "write", "delete")
_LOSSES = [item.name for item in fields(Losses) if item.name != "waited_s"]


def need(holds: object, *text: object) -> None:
    if not holds:
        raise WrongContent(" ".join(map(str, text)))


def idle(queues: Any) -> bool:
    """Whether no thread is at work."""
    return not any(each.queue or each.running for each in queues)


class Tap:
    """A store that does nothing while it is `dead`. before: what happens before each call, on its
    thread. done: by call, the keys of values for which it was done. answers: by call, how many."""

    def __init__(self, store: Any, answers: Counter[tuple[str, Any]]) -> None:
        self.store, self.dead, self.answers = store, False, answers
        self.done = {name: set[str]() for name in _CALLS}
        self.before: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.store, name)
        return partial(self._ask, name, call) if name in _CALLS else call

    def _ask(self, name: str, call: Callable[..., list[Any]], keys: Any, *more: Any) -> list[Any]:
        self.before()
        lost = None if name == "lookup" else Status.FAILED
        answers = [lost] * len(keys) if self.dead else call(keys, *more)
        with self._lock:
            self.answers.update((name, answer) for answer in answers if not self.dead)
            done = (keys[at] for at, status in enumerate(answers) if status is Status.DONE)
            self.done[name].update(done)
        return answers


class Medium:
    """`os` for a store. full: percent of the writes that find no room. flips: of the reads that
    bring a wrong bit. crowded: whether others change the store before and after each read, and
    before each write of a value."""

    def __init__(self, draws: Draws, others: Callable[[], None]) -> None:
        self.full = self.bit_flips = 0
        self.crowded = False
        self._draws, self._others, self._busy = draws, others, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwritev(self, file: int, parts: Sequence[memoryview], at: int) -> int:
        self._interfere()
        if self._draws.chance(self.full):
            raise OSError(errno.ENOSPC, "no room")
        return os.pwritev(file, parts, at)

    def preadv(self, file: int, parts: Sequence[memoryview], at: int) -> int:
        self._interfere()
        moved = os.preadv(file, parts, at)
        if self._draws.chance(self.bit_flips):
            memoryview(parts[0]).cast("B")[0] ^= 1
        self._interfere()
        return moved

    def _interfere(self) -> None:
        if self.crowded and self._busy.acquire(blocking=False):
            try:
                self._others()
            finally:
                self._busy.release()


class RealStore(SimulatedStore):
    """A store of its own. seed: chooses it, and what is done. unsure: the keys that others changed
    in this round. wrong: something is wrong with the medium or the store. backs: how often it had
    come back when the attachment was renewed. notices: of the store that is attached, by kind."""

    def __init__(self, config: Config, seed: int) -> None:
        super().__init__(config)
        self._draws, self._beside = (draws := Draws(seed, "store")), Draws(seed, "beside")
        self._medium = Medium(Draws(seed, "medium"), self._interfere)
        self._turns = Draws(seed, "turns")
        self._kind, self._now, self._transfers = draws.choice(("file", "hf3fs")), 0.0, count(-1, -1)
        self._options = StorageOptions(PATIENCE_S)
        self._size_bytes = draws.choice(SIZES[self._kind]) * BLOCK
        most_bytes, most_keys = draws.choice(((1, 1), (20_000, 3), (1 << 20, 256)))
        threads, self._every = (draws.between(1, 2), draws.between(1, 2)), draws.chance(50)
        options = WorkerOptions(*threads, most_bytes, most_keys, every_boundary=self._every)
        self.compared = self._late = self._backs = 0
        self.unsure, self.wrong = set[str](), False
        self._seen, self._below = Counter[tuple[str, Any]](), Counter[tuple[str, Any]]()
        self._noticed, self.notices, self._known = Counter[str](), Counter[str](), list[int]()
        page, model = config.page_size, _model(config)
        pages, at = {Tier.HOST: dict.fromkeys(self.names, 3 * MOST)}, draws.below(2)
        arena = Arena(model.stages(2)[at], page, pages, layout=draws.choice((*LAYOUTS,)), tp=2)
        context = Context(model.name, "", page, "tokens", model.pools)
        self._document = context_key(context.digest)
        executor: Any = StorageExecutor()
        self._pools, self._executor = stored_pools(arena), executor
        self._stored = stored = StoredPages(context, self._pools, Rank(0, 2, at, 2))
        driver, now = Driver(Core(config), executor), lambda: self._now
        self._attachment = Attachment(driver, executor, stored, now, self._notice, options)
        self._texts = {  # of the keys of actions
            key: _pattern(pool, digest)
            for name, digest in product(self.names, DIGESTS)
            for pool, key in zip(self._pools[name], self._keys(name, digest), strict=True)
        }

    def _notice(self, text: str) -> None:
        self.notices[next((kind for kind in NOTICES if kind in text), text)] += 1

    def _open(self) -> None:
        """Opens the store, and attaches it."""
        address = with_size(parse(f"{self._kind}:{self._folder}"), self._size_bytes)
        self._noticed, self.notices = self._noticed + self.notices, Counter()
        files: Any = Tap(open_storage(address, self._options), self._below)
        self._others: Any = Tap(Checksummed(open_storage(address, self._options)), self._below)
        self._probes, clock = list[Callable[[], None]](), lambda: self._now
        self._breaker = Breaker(files, "store", clock, self._notice, start=self._probes.append)
        self._checked = Checksummed(self._breaker)
        top: Any = Tap(self._checked, self._seen)
        self._top, self.files = top, files
        self._attachment.attach_store(top)
        self._workers: Any = self._attachment._workers
        self._until()
        self._damaged = self._backs = 0
        self._known = self._known or self._apart()

    def _detach(self, force: bool) -> None:
        """Detaches the store. Then every action is answered, and nothing is done."""
        if self._attachment.store is not None:
            self._attachment.detach(force)
        self._until()
        closed = self._attachment.wait_closed(PATIENCE_S) and self._attachment.store is None
        self._begin([Delete(0)])
        answers = [reply[1] for reply in self._executor.poll()]
        need(closed and answers == [0], "detached, and not closed, or answers a delete:", answers)
        need(self._checked.lookup([self._document]) == [None], "a closed store answers")
        self._others.close()

    def play(self) -> None:
        """Raises WrongContent."""
        steps = (self._act, 14), (self._trouble, 4), (self._again, 2), (self._give_up, 8)
        index, large = (mock.patch.object(each, "os", self._medium) for each in (file_index, hf3fs))
        with TemporaryDirectory("", "hicache-fuzz-", MEMORY, True) as folder, index, large:
            self._folder = Path(folder, "store")
            self._open()
            try:
                for _ in range(STEPS):
                    self._draws.weighted(steps)()
                self._detach(True)
            finally:
                self._workers.close()

    # -- steps

    def _act(self) -> None:
        """Several actions at once, sometimes with a delete behind the first."""
        actions = self._actions()
        if self._draws.chance(6):
            actions.insert(1, Delete(next(self._transfers)))
        self._medium.crowded = self._draws.chance(50)
        self._round(actions)

    def _trouble(self) -> None:
        """The store is away, or its medium finds no room or reads a wrong bit now and then."""
        self.wrong, self.files.dead = True, self._draws.chance(50)
        self._medium.full = self._draws.choice((0, 5, 20, 100))
        self._medium.bit_flips = 0 if self._medium.full else 40
        self._round(self._actions())
        key, text = self._draws.choice(list(self._texts.items()))
        for _ in range(self._draws.below(9)):
            self._top.write([key], [(memoryview(text),)])
            self._top.read([key], [(memoryview(bytearray(text)),)])
            self._now += self._draws.below(2) * HUNG_S
        self._refill(self._draws.below(8))

    def _refill(self, hung: int = 0) -> None:
        """Nothing is wrong from now on, but so many probes that hang until they were given up."""
        self.files.dead, self._medium.full, self._medium.bit_flips = False, 0, 0

        hangs = iter(range(hung))

        def hang() -> None:
            for _ in islice(hangs, 1):
                self._now += HUNG_S
                self._breaker.poll()

        self.files.before = hang
        for _ in range(12):
            self._now += HUNG_S
            self._breaker.poll()
            while self._probes:
                self._probes.pop()()
        self.files.before = lambda: None
        key, text = self._draws.choice(list(self._texts.items()))
        stored = self._top.write([key], [(memoryview(text),)]) == [Status.DONE]
        need(stored and not self._breaker.out, "what answers again is not asked, or not written to")
        self.wrong, self._damaged = False, self._checked.corrupt + self._others.corrupt
        backs, was_out = self.notices[BACK], self._attachment.was_out
        need(was_out is (backs > self._backs), "came back", backs, "times, and was_out is", was_out)
        if was_out and self._draws.chance(70):  # else it says so once more
            self._attachment.renew()
            self._backs = backs

    def _again(self) -> None:
        """It is opened again, of another size. The text of its context may take room."""
        there, gone = self._there(), self._gone()
        self._detach(self._draws.chance(50))
        if self._kind == "file":
            self._size_bytes = self._draws.choice(SIZES["file"]) * BLOCK
        self._open()
        self._judge("it was opened again", there, None, gone)

    def _give_up(self) -> None:
        """Actions are given up while the store is at them: each is abandoned, takes too long, or
        the store is detached. Once answered, its pages are others'."""
        draws, actions = self._draws, self._actions()
        way = draws.choice(("abandon", "abandon", "hang", "detach"))
        if fetches := [action for action in actions if isinstance(action, Fetch)]:
            self._round([Store(next(self._transfers), action.pieces) for action in fetches])
        calls, first, go_on, hung = count(), draws.below(6), threading.Event(), list[int]()

        def wait() -> None:
            if (call := next(calls)) >= first and not go_on.is_set():
                with self._workers.changed:
                    hung.append(call)
                    self._workers.changed.notify_all()
                go_on.wait(PATIENCE_S)

        def still(queues: Any) -> bool:
            waits = any(each.queue and len(each.running) < each.threads for each in queues)
            return not waits and sum(len(each.running) for each in queues) == len(hung)

        there, gone = self._new_round(actions, False, wait)
        self._until(still)
        ended = [action for action in actions if way != "abandon" or draws.chance(70)]
        if way == "hang":
            self._now += HUNG_S
        elif way == "detach":
            self._attachment.detach(draws.chance(50))
        elif way == "abandon":
            for action in ended:
                self._executor.abandon(action.transfer)
        answered = self._answered(actions) + self._answered(actions)
        need(all(action in answered for action in ended), "not answered:", actions, way)
        theirs = tuple(
            piece._replace(digests=(bytes(32),) * len(piece.pages))
            for action in answered
            for piece in getattr(action, "pieces", ())
        )
        self._write_pages(Store(0, theirs))
        self.files.dead, self.files.before = way == "hang", lambda: None
        self._late += len(hung) if way == "hang" else 0
        go_on.set()
        self._until()
        self._compare(Fetch(0, 0, 0, theirs, 0), 2 * MOST)
        answered += self._answered(actions)
        need(len(answered) == len(actions), len(answered), "answers to", actions)
        if way == "detach":
            self._known = []  # what the calls under way did not do is nobody's loss
            self._detach(True)
            self._open()
        self._below.clear()
        if way == "hang":
            self._refill(draws.below(3))
        self._judge(actions, there | self._top.done["write"], None, gone)

    # -- a round

    def _begin(self, actions: Sequence[StorageAction]) -> None:
        for action in actions:
            self._executor.submit(action)
        self._executor.start()

    def _until(self, done: Callable[[Any], bool] = idle) -> None:
        with self._workers.changed:
            queues = self._workers._call_queues
            if not self._workers.changed.wait_for(lambda: done(queues), PATIENCE_S):
                raise StuckError("the threads of storage do not end their actions")

    def _new_round(self, actions: Any, undisturbed: bool, before: Any) -> tuple[set[str], int]:
        """Begins actions. sure: nothing else happens, and nothing is given up. Returns what is
        there, and how much was evicted so far."""
        self._below.clear()
        self._top.done = {name: set[str]() for name in _CALLS}
        there, gone = self._there(), self._gone()
        self.unsure, self._alone, self._undisturbed = set(), len(actions) == 1, undisturbed
        known = all(isinstance(action, Fetch | Lookup) for action in actions)
        known = known and not self._medium.crowded and not self.wrong
        self._reads: Any = there if known else None
        self.files.before = before
        for action in actions:
            self._write_pages(action)
        self._begin(actions)
        return there, gone

    def _round(self, actions: Sequence[StorageAction]) -> None:
        """Carries out actions at once, in turns that are drawn."""
        deletes = any(isinstance(action, Delete) for action in actions)
        turns = [0.001] if deletes else [0.0, 0.0, 0.0, 0.001]  # others could begin beside it
        undisturbed = not self.wrong and not self._medium.crowded
        before = lambda: time.sleep(self._turns.choice(turns))  # noqa: E731
        there, gone = self._new_round(actions, undisturbed, before)
        self._until()
        answered = self._answered(actions)
        need(len(answered) == len(actions), len(answered), "answers to", actions)
        self._medium.crowded, self.files.before = False, lambda: None
        stores = [action for action in actions if isinstance(action, Store)]
        may = {key for store in stores for item in self._items(store) for key in item.keys}
        must = set() if deletes else (there | self._top.done["write"]) - self.unsure
        if not self.wrong:
            self._judge(actions, must, may if deletes else None, gone)

    def _answered(self, actions: Sequence[StorageAction]) -> list[StorageAction]:
        """The actions that have been answered. Each counts the values that were read or written in
        this round, of which several may share some. Raises WrongContent."""
        ended = []
        for reply in self._executor.poll():
            [action] = [action for action in actions if action.transfer == reply.transfer]
            ended.append(action)
            counted, right = int(reply[1]), True
            if isinstance(action, Delete):
                right = bool(counted) is not self.wrong
            elif isinstance(action, Lookup) and self._reads is not None:
                prefix = offered(reply) if self._every else counted
                right = prefix == self._restorable(action) or not (self._undisturbed or prefix)
            elif isinstance(action, Fetch | Store):
                stores = isinstance(action, Store)
                most = self._due(action, self._top.done["write" if stores else "read"])
                right = counted == most or (counted < most and not self._alone)
                if not stores and counted:
                    self._compare(action, counted)
                if self._undisturbed and self._reads is not None:
                    right = right and counted == self._due(action, self._reads)
            need(right, reply, "to", action)
        return ended

    def _due(self, action: Any, done: Set[str]) -> int:
        """What an action counts if these values were read or written."""
        items = self._items(action)
        if isinstance(action, Store):
            return sum(1 for _ in takewhile(lambda item: done >= {*item.keys}, items))
        missing = [item.depth for item in items if not done >= {*item.keys}]
        end = min([*missing, action.first_page + action.pages])
        return int(max(0, end - action.first_page))

    def _items(self, action: Any) -> list[Any]:
        stores = isinstance(action, Store)
        return [x for piece in action.pieces for x in self._stored.items(piece, written=stores)]

    def _restorable(self, action: Lookup) -> int:
        """What a simulated store finds if it has what is there."""
        self.values = {
            (index, digest)
            for (index, name), digest in product(enumerate(self.names), action.digests)
            if self._reads >= {*self._keys(name, digest)}
        }
        ends = self.boundaries(action)
        return sum(1 << end - 1 for end in ends) if self._every else max(ends, default=0)

    def _judge(self, actions: object, must: set[str], may: set[str] | None, gone: int) -> None:
        """gone: how many values had been evicted before. Raises WrongContent."""
        there, more = self._there(), self._gone() - gone
        lost, may = must - there, there if may is None else may | self.unsure | {self._document}
        sizes = [entry.size_bytes for entry in self._others.entries("")]
        used = sum(-(-size // BLOCK) * BLOCK for size in sizes)
        stats, most = self._others.stats(), self._size_bytes
        has = [stats[name] for name in ("values", "bytes", "used_bytes")]
        disk, on_disk = stats["disk_bytes"], (self._folder / "data").stat().st_blocks * 512
        failed = sum(n for (_, answer), n in self._below.items() if answer is Status.FAILED)
        for holds, *text in (
            (not failed, "values failed, and nothing was wrong:", failed),
            (self._checked.corrupt + self._others.corrupt == self._damaged, "damaged values"),
            (there <= may, "there after a delete:", there - may),
            (len(lost) <= more, "neither there nor evicted:", lost),
            (most or not more, "evicted without need"),
            (has == [len(sizes), sum(sizes), used], stats, "of", sizes),
            (disk <= on_disk <= disk + SPARE, stats, "and on the disk", on_disk),
            (not most or disk <= most, stats, "and it may use", most),
            ((apart := self._apart()) == self._known, "losses apart from what was seen:", apart),
            (self.notices.keys() <= {*NOTICES}, "notices:", self.notices),
        ):
            need(holds, *text, "after", actions)

    def _apart(self) -> list[int]:
        """By how much each count of losses differs from what was seen."""
        seen, notices = self._seen, self._noticed + self.notices
        losses = self._attachment.losses
        reads = [seen["read", how] for how in (Status.FAILED, Status.MISSING, Status.CORRUPT)]
        writes = sum(seen["write", how] for how in Status if how is not Status.DONE)
        calls = [seen["lookup", None], *reads, writes, seen["delete", Status.FAILED]]
        right = [*calls, notices[AWAY], notices[NO_WRITES], self._late]
        return [getattr(losses, name) - n for name, n in zip(_LOSSES, right, strict=True)]

    def _compare(self, action: Any, arrived: int) -> None:
        for index, digest, page, depth in self._pages(action):
            counted = depth < action.first_page + arrived
            for pool in self._pools[self.names[index]] if counted else ():
                text = bytearray(pool.page_bytes)
                pool.save(page, memoryview(text))
                self.compared += 1
                need(text == _pattern(pool, digest), pool.name, "other bytes", page, action)

    def _interfere(self) -> None:
        """Some other process does something."""
        draws = self._beside
        if not draws.chance(40):
            return
        keys = [draws.choice(list(self._texts)) for _ in range(draws.between(1, 3))]
        values = [(memoryview(bytearray(self._texts[key])),) for key in keys]
        if draws.chance(40):
            self._others.read(keys, values)
        elif draws.chance(70):
            self.unsure.update(keys)
            self._others.write(keys, values)
        else:
            keys = keys if draws.chance(70) else sorted(self._there())
            self.unsure.update(keys)
            self._others.delete(keys)

    # -- actions

    def _actions(self) -> list[Any]:
        return [self._action(turn) for turn in range(self._draws.between(1, 3))]

    def _action(self, turn: int) -> Any:
        """In pages that the core lacks."""
        draws, first, transfer = self._draws, self._draws.below(len(DIGESTS)), next(self._transfers)
        digests = tuple(DIGESTS[first : first + draws.between(1, MOST)])
        kind = draws.choice((Store, Store, Fetch, Fetch, Lookup))
        if kind is Lookup:
            trailing = tuple(draws.below(3) * (at > 0) for at in range(len(self.names)))
            return Lookup(transfer, 0, 0, digests, draws.below(2), trailing)
        depth, pages = draws.below(4), np.arange(turn * MOST, turn * MOST + len(digests))
        pieces = []
        for at, name in enumerate(self.names):
            skip = draws.below(len(digests)) if at else 0
            pieces.append(Piece(name, depth + skip, digests[skip:], pages[skip:]))
        if kind is Store:
            return Store(transfer, tuple(pieces))
        known = draws.below(len(digests))
        return Fetch(transfer, 0, depth + known, tuple(pieces), len(digests) - known)

    def _write_pages(self, action: StorageAction) -> None:
        """The host pages have what is to be stored; those that are to be filled have nothing."""
        filled = isinstance(action, Store)
        pages = self._pages(action) if isinstance(action, Fetch | Store) else ()
        for index, digest, page, _ in pages:
            for pool in self._pools[self.names[index]]:
                text = _pattern(pool, digest) if filled else bytes(pool.page_bytes)
                pool.load(page, memoryview(text))

    def _keys(self, component: str, digest: bytes) -> list[str]:
        return [key for [key] in self._stored.keys(component, [digest])]

    def _there(self) -> set[str]:
        return {entry.key for entry in self._others.entries("")}

    def _gone(self) -> int:
        return sum(int(self._others.stats().get(name, 0)) for name in ("evicted", "lost"))


def _pattern(pool: StoredPool, digest: bytes) -> bytes:
    block = blake2b(pool.name.encode() + digest).digest()
    return (block * (pool.page_bytes // len(block) + 1))[: pool.page_bytes]


def _model(config: Config) -> ModelDescription:
    """A made-up model. Every component has a pool, with the keys of an indexer, and the rows of a
    draft model in the last layer."""
    sizes = {"hidden_size": 8, "head_dim": 8, "intermediate_size": 8, "vocab_size": 8}
    plain = described({"num_hidden_layers": 2, "num_attention_heads": 2, **sizes}, "fuzz", "fuzz")
    pools = []
    for name in config.components:
        own = replace(plain.pools[0], name=name, component=name)
        if residency(name) == "state":
            own = replace(own, kind="state", parts=("state",), page_rows=1)
        key = replace(own, name=f"{name}-key", kind="indexer", parts=("key",), anchor=name)
        key = replace(key, heads=1, dtype="fp8", scale_group=8, scale_bytes=4)
        pools += [own, key, replace(own, name=f"{name}-draft", layers=own.layers[-1:], anchor=name)]
    return replace(plain, pools=tuple(pools))
