"""A storage with real bytes: the threads of the runtime carry out every action on host pools in
memory and a small store in a folder of its own, which ranks and stages of a pipeline share. The
core is answered by the simulated simulated store. At the end come further actions, several at once,
beside others that write, read and delete, on a medium that moves parts and may be full; the store
is away, its probes hang, an action is given up, and it is opened again. What a page holds follows
from its pool, place and digest. So a page that was fetched has its bytes; what was stored is there,
or is counted as evicted; nothing fails while nothing is wrong; and what was away is asked again.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import count, product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from hicache.core.actions import Delete, Fetch, Lookup, Piece, StorageAction, Store
from hicache.core.components import residency
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import StorageReply
from hicache.core.types import Tier
from hicache.memory.layouts import LAYOUTS
from hicache.memory.pools import Arena, StoredPool, stored_pools
from hicache.models import ModelDescription, described
from hicache.runtime.storage import Rank, StoredPages, WorkerOptions, Workers
from hicache.storage import file_index
from hicache.storage.address import open_storage, parse
from hicache.storage.backends import hf3fs
from hicache.storage.base import Status, StorageOptions
from hicache.storage.breaker import Breaker
from hicache.storage.checksummed import Checksummed
from hicache.storage.file_index import BLOCK
from hicache.storage.keys import Context, context_key
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.simulated_store import SimulatedStore, WrongContent
from sim.errors import StuckError

PATIENCE_S = 300.0  # for a thread, which takes milliseconds
STEPS = 16  # after the last action of the core
DIGESTS = [bytes([number]) * 32 for number in range(16)]  # of the pages of these
MOST = 5  # pages of one of these
SIZES = {"file": (0, 3, 6, 16, 40), "hf3fs": (3, 6, 16, 40)}  # by store: units of 4096 bytes
WELL = SimpleNamespace(fine=True, says=lambda pages, most: pages)  # see hand.Fault
HUNG_S = 100.0  # of a call that hangs: more than the breaker waits
_MODULES: tuple[Any, ...] = (file_index, hf3fs)  # whose `os` is the medium
_CALLS = ("lookup", "read", "write", "delete")


def until(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise StuckError(f"the threads of storage do not end {what}")
        time.sleep(0.0002)


class Faulty:
    """A store that does nothing while it is `dead`. before: what happens before each call, on its
    thread. written: the keys of values that were. failed: how many were not, while it lived."""

    def __init__(self, store: Any) -> None:
        self.store, self.dead, self.written, self.failed = store, False, set[str](), 0
        self.before: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.store, name)
        return partial(self._ask, name, call) if name in _CALLS else call

    def entries(self, prefix: str) -> Any:
        if self.dead:
            raise OSError("dead")
        return self.store.entries(prefix)

    def _ask(self, name: str, call: Callable[..., list[Any]], keys: Any, *more: Any) -> list[Any]:
        self.before()
        if self.dead:
            return [None if name == "lookup" else Status.FAILED] * len(keys)
        answers = call(keys, *more)
        self.failed += answers.count(Status.FAILED)
        if name == "write":
            self.written |= {keys[at] for at, status in enumerate(answers) if status is Status.DONE}
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
        return os.pwritev(file, self._part(parts), at)

    def preadv(self, file: int, parts: Sequence[memoryview], at: int) -> int:
        self._interfere()
        moved = os.preadv(file, self._part(parts), at)
        if self._draws.chance(self.bit_flips):
            memoryview(parts[0]).cast("B")[0] ^= 1
        self._interfere()
        return moved

    def _part(self, parts: Sequence[memoryview]) -> Sequence[memoryview]:
        first = memoryview(parts[0]).cast("B")
        return [first[: -(-first.nbytes // 2)]] if self._draws.chance(20) else parts

    def _interfere(self) -> None:
        if self.crowded and self._busy.acquire(blocking=False):
            try:
                self._others()
            finally:
                self._busy.release()


@dataclass
class Place:
    """One rank of one stage."""

    rank: Rank
    pools: dict[str, tuple[StoredPool, ...]]
    stored: StoredPages
    workers: Any = None

    def pattern(self, pool: StoredPool, digest: bytes) -> bytes:
        own = -1 if pool.shared else self.rank.rank
        block = blake2b(f"{pool.name} {own} {self.rank.stage}".encode() + digest).digest()
        return (block * (pool.page_bytes // len(block) + 1))[: pool.page_bytes]


class RealStore(SimulatedStore):
    """A simulated store whose actions are carried out for real, too. seed: chooses the store, the
    places and what is done in the end. unsure: the keys that others changed in this round. wrong:
    something is wrong with the medium or the store."""

    def __init__(self, config: Config, seed: int) -> None:
        super().__init__(config)
        self._config, self._draws = config, (draws := Draws(seed, "store"))
        self._beside = Draws(seed, "beside")
        self._medium = Medium(Draws(seed, "medium"), self._interfere)
        ranks, stages = draws.choice(((1, 1), (1, 1), (2, 1), (1, 2), (2, 2)))
        self._kind, self._now, self._transfers = draws.choice(("file", "hf3fs")), 0.0, count(-1, -1)
        self._options = StorageOptions(draws.choice(SIZES[self._kind]) * BLOCK, PATIENCE_S)
        most_bytes, most_keys = draws.choice(((1, 1), (20_000, 3), (1 << 20, 256)))
        self._threads = WorkerOptions(2, 2, most_bytes, most_keys)
        self._steps, self.compared = STEPS, 0
        self.unsure: set[str] = set()
        self.wrong = False
        self._temporary = TemporaryDirectory(prefix="hicache-fuzz-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name, "store")
        self._places = list(self._new_places(ranks, stages, draws.choice(tuple(LAYOUTS))))
        self._texts = {  # of the keys of further actions
            key: place.pattern(pool, digest)
            for place, name, digest in product(self._places, self.names, DIGESTS)
            for pool, key in zip(place.pools[name], self._keys([place], name, digest), strict=True)
        }
        for module in _MODULES:
            module.os = self._medium
        self._open()

    def _new_places(self, ranks: int, stages: int, layout: str) -> Iterator[Place]:
        page, model = self._config.page_size, _model(self._config)
        sizes = zip(self.names, self._config.host_pages, strict=True)
        pages = {Tier.HOST: {name: size + 3 * MOST for name, size in sizes}}
        context = Context(model.name, "", page, "tokens", model.pools)
        self._document = context_key(context.digest)
        for rank, stage in product(range(ranks), range(stages)):
            arena = Arena(model.stages(stages)[stage], page, pages, layout=layout, tp=ranks)
            pools, own = stored_pools(arena), Rank(rank, ranks, stage, stages)
            yield Place(own, pools, StoredPages(context, pools, own))

    def _open(self) -> None:
        """Opens the store, and starts the threads of all places."""

        def now() -> float:
            return self._now

        address = parse(f"{self._kind}:{self._folder}")
        files: Any = Faulty(open_storage(address, self._options))
        self.files, self._others = files, Checksummed(open_storage(address, self._options))
        self._probes: list[Callable[[], None]] = []
        self._breaker = Breaker(files, "store", now, lambda notice: None, start=self._probes.append)
        self._verified = Checksummed(self._breaker)
        for place in self._places:
            place.workers = Workers(
                self._verified, place.stored, now, lambda notice: None, self._threads
            )
        self._rest()

    def _end(self) -> None:
        for place in self._places:
            place.workers.close()
        self._rest()
        self._others.close()
        self._verified.close()

    def _rest(self) -> None:
        """Until no thread is at work."""
        call_queues = [
            calls_of for place in self._places for calls_of in place.workers._call_queues
        ]
        until(
            lambda: not any(calls_of.queue or calls_of.running for calls_of in call_queues),
            "their actions",
        )

    def reply(self, action: StorageAction, kind: Any) -> StorageReply:
        self.files.dead = self.wrong = not kind.fine
        self._round([action])
        if not kind.fine:
            self._refill()
        return super().reply(action, kind)

    def at_rest(self) -> None:
        steps = (self._act, 14), (self._trouble, 4), (self._again, 1), (self._abandon, 2)
        while self._steps:
            self._steps -= 1
            self._draws.weighted(steps)()

    def close(self) -> None:
        self._end()
        for module in _MODULES:
            module.os = os
        self._temporary.cleanup()

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
            self._verified.write([key], [(memoryview(text),)])
            self._verified.read([key], [(memoryview(bytearray(text)),)])
            self._now += self._draws.below(2) * HUNG_S
        self._refill(self._draws.below(8))

    def _refill(self, hung: int = 0) -> None:
        """Nothing is wrong from now on, but so many probes that hang until they were given up."""
        self.files.dead, self._medium.full, self._medium.bit_flips = False, 0, 0
        self._verified.corrupt = 0

        def hang() -> None:
            nonlocal hung
            if hung > 0:
                hung -= 1
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
        if self._verified.write([key], [(memoryview(text),)]) != [Status.DONE] or self._breaker.out:
            raise WrongContent("a store that answers again is not asked, or takes no writes")
        self.wrong = False

    def _again(self) -> None:
        """It is opened again. The text of its context may take room."""
        there, gone = self._there(), self._gone()
        self._end()
        self._open()
        if why := self.files.troubles():
            raise WrongContent(f"a store that was closed has troubles: {why}")
        lost = there - self._there()
        if len(lost) > self._gone() - gone:
            raise WrongContent(f"opened again, the store has lost {sorted(lost)}")

    def _abandon(self) -> None:
        """An action is given up while the store is at it. Once answered, its pages are others'."""
        place, action = self._draws.choice(self._places), self._actions()[0]
        if isinstance(action, Fetch):
            self._round([Store(next(self._transfers), action.pieces)])
        begun, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            go_on.wait(PATIENCE_S)

        self._write_pages(place, action)
        self.files.before = wait
        place.workers.begin([action])
        until(lambda: begun.is_set() or not place.workers._open, "a call")
        place.workers.abandon(action.transfer)
        answers = place.workers.poll()
        theirs = Fetch(0, 0, 0, (), 0)
        if answers and isinstance(action, Fetch | Store):
            pieces = [
                piece._replace(digests=(bytes(32),) * len(piece.pages)) for piece in action.pieces
            ]
            theirs = theirs._replace(pieces=tuple(pieces))
            self._write_pages(place, Store(0, theirs.pieces))
        self.files.before = lambda: None
        go_on.set()
        self._rest()
        self._compare(place, theirs, 2 * MOST)
        answers += place.workers.poll()
        if len(answers) != 1:
            raise WrongContent(f"{action} has the answers {answers}")

    # -- a round

    def _round(self, actions: Sequence[StorageAction]) -> None:
        """Every place carries out these actions at once; a delete, which deletes what all have
        stored, only one."""
        places, there, gone = self._places, self._there(), self._gone()
        if any(isinstance(action, Delete) for action in actions):
            places = places[:1]
            self.files.before = lambda: time.sleep(0.001)  # so that others could begin beside it
        sure = not self.wrong and not self._medium.crowded
        self.unsure, self.files.failed, self.files.written = set(), 0, set()
        for place in places:
            for action in actions:
                self._write_pages(place, action)
            place.workers.begin(actions)
        answers: list[dict[int, int]] = [{} for _ in places]

        def answered() -> bool:
            for mine, place in zip(answers, places, strict=True):
                mine.update({reply.transfer: int(reply[1]) for reply in place.workers.poll()})
            return all(len(mine) == len(actions) for mine in answers)

        until(answered, str(actions))
        self._rest()
        self._medium.crowded, self.files.before = False, lambda: None
        only_reads = sure and all(isinstance(action, Fetch | Lookup) for action in actions)
        must, may = set(there), None  # what is there, and what may be there after a delete
        for action in actions:
            counts = [mine[action.transfer] for mine in answers]
            wanted = counts
            if isinstance(action, Store):
                keys = [self._keys(places, self.names[at], x) for at, x, *_ in self._pages(action)]
                stored = set[str]().union(*keys[: min(counts)])
                if unwritten := stored - self.files.written:
                    raise WrongContent(f"counted as stored: {sorted(unwritten)}, after {actions}")
                must |= stored
                if may is not None:
                    may.update(*keys)
                if sure and not self._options.size_bytes:
                    wanted = [len(keys)] * len(places)
            elif isinstance(action, Delete):
                wanted = [int(not self.wrong)]
                must, may = set[str](), set[str]()
            elif only_reads:
                wanted = [self._wanted(action, place, there) for place in places]
            if counts != wanted:
                raise WrongContent(f"the threads answer {counts} to {action}, expected {wanted}")
            if isinstance(action, Fetch):
                for place, arrived in zip(places, counts, strict=True):
                    self._compare(place, action, arrived)
        if not self.wrong:
            self._judge(actions, must - self.unsure, may, gone)

    def _judge(self, actions: object, must: set[str], may: set[str] | None, gone: int) -> None:
        """gone: how many values had been evicted before. Raises WrongContent."""
        there, damaged = self._there(), self._verified.corrupt + self._others.corrupt
        lost, extra = must - there, set() if may is None else there - may - self.unsure
        used = sum(-(-entry.size_bytes // BLOCK) * BLOCK for entry in self._others.entries(""))
        leaks = self._others.stats()["used_bytes"] != used
        for wrong, text in (
            (self.files.failed, f"{self.files.failed} values failed, and nothing was wrong"),
            (damaged, f"{damaged} values were damaged"),
            (extra, f"there after a delete: {sorted(extra)}"),
            (len(lost) > self._gone() - gone, f"neither there nor evicted: {sorted(lost)}"),
            (leaks, f"values have {used} bytes, and more are not free"),
        ):
            if wrong:
                raise WrongContent(f"{text}, after {actions}")

    def _wanted(self, action: Fetch | Lookup, place: Place, there: set[str]) -> int:
        """What the simulated storage would answer if it had what is there."""
        simulated_store, pieces = SimulatedStore(self._config), getattr(action, "pieces", ())
        digests = {*getattr(action, "digests", ()), *(x for piece in pieces for x in piece.digests)}
        simulated_store.values = {
            (index, digest)
            for (index, name), digest in product(enumerate(self.names), digests)
            if there.issuperset(self._keys([place], name, digest))
        }
        return int(simulated_store.reply(action, WELL)[1])

    def _compare(self, place: Place, action: Fetch, arrived: int) -> None:
        for index, digest, page, depth in self._pages(action):
            counted = depth < action.first_page + arrived
            for pool in place.pools[self.names[index]] if counted else ():
                text = bytearray(pool.page_bytes)
                pool.save(page, memoryview(text))
                self.compared += 1
                if text != place.pattern(pool, digest):
                    raise WrongContent(
                        f"{place.rank}: host page {page} of {pool.name} has other bytes than were "
                        f"stored, after {action}",
                        About("page", page, int(Tier.HOST), self.names[index]),
                    )

    def _interfere(self) -> None:
        """Some other process does something."""
        draws = self._beside
        if not draws.chance(40):
            return
        keys = [draws.choice(list(self._texts)) for _ in range(draws.between(1, 3))]
        values = [(memoryview(bytearray(self._texts[key])),) for key in keys]
        if draws.chance(40):
            statuses = self._others.read(keys, values)
        elif draws.chance(70):
            self.unsure.update(keys)
            statuses = self._others.write(keys, values)
        else:
            keys = keys if draws.chance(70) else sorted(self._there())
            self.unsure.update(keys)
            statuses = self._others.delete(keys)
        self.files.failed += statuses.count(Status.FAILED)

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
        sizes = zip(self.names, self._config.host_pages, strict=True)
        pieces = tuple(Piece(name, depth, digests, size + pages) for name, size in sizes)
        if kind is Fetch:
            return Fetch(transfer, 0, depth, pieces, len(digests))
        return Store(transfer, pieces)

    def _write_pages(self, place: Place, action: StorageAction) -> None:
        """The host pages have what is to be stored; those that are to be filled have nothing."""
        filled = isinstance(action, Store)
        pages = self._pages(action) if isinstance(action, Fetch | Store) else ()
        for index, digest, page, _ in pages:
            for pool in place.pools[self.names[index]]:
                text = place.pattern(pool, digest) if filled else bytes(pool.page_bytes)
                pool.load(page, memoryview(text))

    def _keys(self, places: Sequence[Place], component: str, digest: bytes) -> list[str]:
        return [key for place in places for [key] in place.stored.keys(component, [digest])]

    def _there(self) -> set[str]:
        return {entry.key for entry in self._others.entries("")} - {self._document}

    def _gone(self) -> int:
        stats = self._others.stats()
        return int(stats["evicted"]) + int(stats.get("lost", 0))


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
