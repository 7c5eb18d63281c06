"""What a worker's half of this project's own connector moves, under vLLM's scheduler: a copy, or an
action of the store, ends when it is told to. It copies tensors that have the contents of `Memory`,
and the store keeps its values in memory. Scripts copy definitions from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from hicache.core import actions
from hicache.core.events import EvictWanted, LookupDone
from hicache.core.types import Tier
from hicache.runtime.driver import REPLY_TO
from hicache.runtime.restorable import LookedUp
from hicache.runtime.storage.pages import Rank, StoredPages
from hicache.storage.base import Losses
from hicache.vllm.describing import context_of
from hicache.vllm.groups import FULL, STATE
from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_doubles import BROKEN, Memory
from invariants.fuzz.targets._vllm_worker import torn

COPIED = -3  # contents of a block into which something is loaded
SPOILT = 0xEE  # bytes of a host page into which something is copied
REPLIES = REPLY_TO | {actions.Lookup: LookedUp}
LAYER = 1 << 40  # by so much the words of a layer differ from those of the one before


def formed(form: str, blocks: int, words: int, state: bool) -> tuple[Any, Any]:
    """A layer's memory, as vLLM registers it and by block. plain: blocks come first. split: kernels
    have blocks of half the size. planes: keys and values apart. A state is two tensors."""
    whole = torch.zeros((blocks, words), dtype=torch.int64)
    if state:
        return [whole[:, : words // 2], whole[:, words // 2 :]], whole.numpy()
    if form == "planes":
        planes = torch.zeros((2, blocks, words // 2), dtype=torch.int64)
        return planes, planes.permute(1, 0, 2).numpy()
    return whole.view(2 * blocks, words // 2) if form == "split" else whole, whole.numpy()


class Outages:
    """Stands in for an open store, of which a half asks how often it has come back."""

    losses = Losses()

    def __init__(self) -> None:
        self.count = 0

    def poll(self) -> int:
        return self.count

    def close(self) -> None:
        """Nothing is open."""


class Move:
    """Something under way. seen: what it reads, when it began."""

    def __init__(self, rank: Held, action: Any, seen: Any) -> None:
        self.rank, self.action, self.seen = rank, action, seen


class Moves:
    """What the halves of all ranks have under way. values: of the store. form: of tensors."""

    def __init__(self, memory: Memory, ranks: Any, form: str) -> None:
        self.memory = memory
        self.jobs: dict[int, Move] = {}
        self.began: list[tuple[int, str]] = []
        self.values: dict[str, bytes] = {}
        self.arrived: dict[int, list[Any]] = {}  # by load, the contents on each rank
        self.offers: dict[int, list[set[int]]] = {}  # by lookup, what each rank can restore
        self.outages = Outages()
        self.number = self.changes = 0
        self.ranks = [Held(self, half, form) for half in ranks.halves]

    def begin(self, rank: Held, action: Any) -> None:
        self.number += 1
        self.changes += 1
        self.jobs[self.number] = Move(rank, action, rank.begin(action))
        self.began.append((self.number, type(action).__name__))

    def end(self, number: int, fails: bool = False) -> None:
        """It is done, or has failed."""
        job = self.jobs.pop(number, None)
        if job is not None:
            self.changes += 1
            job.rank.answers[job.action.flight] = job.rank.end(job.action, job.seen, fails)

    def cool(self, scheduler: Any) -> None:
        """Evicts all of host that can go, as other prompts would: the store alone has it then, and
        at times has lost every third window and state."""
        decider = scheduler.connector._decider
        pools = decider.driver.core.view.pools(Tier.HOST)
        for name, pool in zip(decider.groups.components, pools, strict=True):
            if pool.evictable:
                decider._feed(EvictWanted(Tier.HOST, name, pool.evictable))
        if self.number % 4 > 1:
            short = [key for key in self.values if f"/{FULL}/" not in key]
            for key in short[self.number % 3 :: 3]:
                del self.values[key]

    def listen(self, scheduler: Any) -> None:
        """Sees what the core is told, as an observer of its driver."""
        driver = scheduler.connector._decider.driver
        driver.observers = (*driver.observers, self)

    def on_event(self, event: Any, view: Any) -> None:
        """A lookup must find the longest prefix that every rank can restore."""
        if isinstance(event, LookupDone):
            offers = self.offers.pop(event.flight)
            longest = max(set.intersection(*offers), default=0)
            text = f"a lookup finds {event.pages} pages, not {longest}: ranks can restore {offers}"
            need(event.pages == longest, "RANK-EQ", text, "prefix")

    def on_outcomes(self, event: Any, outcomes: Any, view: Any) -> None:
        """Nothing to judge."""

    def load(self, flight: int, blocks: Sequence[tuple[int, int]], found: Any) -> None:
        """A load has ended on one rank. found: the contents of its blocks, None if it failed."""
        all_of_them = self.arrived.setdefault(flight, [])
        all_of_them.append(found)
        if len(all_of_them) < len(self.ranks):
            return
        del self.arrived[flight]
        for at, (group, block) in enumerate(blocks):
            text = f"block {block} was overwritten while a load wrote it"
            need(self.memory.is_filled(block, group, COPIED), "PIN-IO", text, "load target")
            first, *others = [None if one is None else one[at] for one in all_of_them]
            if first is None or any(one != first for one in others):
                self.memory.fill(block, group, BROKEN)
            else:
                self.memory.restore(block, *first)


class Held:
    """The executor of one rank's half, in front of its own: what is begun ends when it is told to.
    Loads are answered in their order, and so are backups."""

    def __init__(self, moves: Moves, half: Any, form: str) -> None:
        self.moves, groups = moves, half._groups
        self.group = {one.slot(at): one for one in groups.groups for at in range(one.parts)}
        layers = [layer for one in groups.groups for layer in one.layers]
        self.salt = {layer: at * LAYER for at, layer in enumerate(layers)}
        given, self.blocks = {}, {}
        for one in groups.groups:
            words = -(-(2 + one.block) // 4) * 4
            for layer in one.layers:
                given[layer], self.blocks[layer] = formed(
                    form, half._blocks, words, one.component == STATE
                )
        half.register_kv_caches(given)
        self.mover = half._mover
        self.copier, self.mover._executor = self.mover._executor, self
        self.lent = self.mover.lent
        self.mover._store = moves.outages
        pools = {name: (buffer,) for name, buffer in self.lent.buffers.items()}
        parallel = half._config.parallel_config
        rank = Rank(parallel.rank, parallel.world_size)
        context = context_of(half._config, half._groups, given, half._blocks, {})
        self.stored = StoredPages(context, pools, rank)
        self.order: list[Any] = []  # actions without a reply
        self.answers: dict[int, int] = {}

    # -- what the half calls

    def submit(self, action: Any) -> None:
        self.order.append(action)
        self.moves.begin(self, action)

    def abandon(self, flight: int) -> None:
        for number, job in list(self.moves.jobs.items()):
            if job.rank is self and job.action.flight == flight:
                self.moves.end(number, True)

    def start(self) -> None:
        """What was submitted has begun."""

    def poll(self) -> list[Any]:
        found, waits = [], set()
        for action in list(self.order):
            kind = type(action)
            if action.flight in self.answers and kind not in waits:
                self.order.remove(action)
                found.append(REPLIES[kind](action.flight, self.answers.pop(action.flight)))
            elif kind in (actions.Load, actions.Backup):
                waits.add(kind)
        return found

    # -- what is moved

    def begin(self, action: Any) -> Any:
        """What an action reads. What it is to write is spoilt from here on."""
        memory = self.moves.memory
        if isinstance(action, actions.Backup):
            self._spoil(self._pages(action))
            return [memory.content(block) for _, block in self._blocks(action)]
        if isinstance(action, actions.Load):
            for slot, block in self._blocks(action):
                memory.fill(block, self.group[slot].number, COPIED)
        if isinstance(action, actions.Fetch):
            self._spoil(self._pages(action))
        return [page.tobytes() for page in self._pages(action)]

    def end(self, action: Any, seen: Any, fails: bool) -> int:
        """Carries an action out. Returns its pages, or 1 if it was done; of a lookup, the set of
        what can be restored, as bits."""
        if isinstance(action, actions.Load | actions.Backup):
            return self._copy(action, seen, fails)
        if isinstance(action, actions.Lookup):
            offer = set() if fails else self._look_up(action)
            self.moves.offers.setdefault(action.flight, []).append(offer)
            return sum(1 << pages - 1 for pages in offer)
        if isinstance(action, actions.Fetch):
            return self._fetch(action, fails)
        if isinstance(action, actions.Store):
            return self._store(action, seen, fails)
        self.moves.values.clear()
        return 1

    def _copy(self, action: Any, seen: Any, fails: bool) -> int:
        blocks, memory = list(self._blocks(action)), self.moves.memory
        if isinstance(action, actions.Backup):
            for (slot, block), before in zip(blocks, seen, strict=True):
                self._put(slot, block, torn(before, memory.content(block)))
            self._unread(action, "backup")
        else:
            same = [page.tobytes() for page in self._pages(action)] == seen
            need(same, "PIN-IO", "a host page was overwritten while a load read it", "load source")
        if not fails:
            self.copier.submit(action)
            self.copier.start()
            [reply] = self.copier.poll()
            need(reply.ok, "CONTRACT", "a copy of the CPU device fails", "copy")
        if isinstance(action, actions.Load):
            found = None if fails else [self._got(*one) for one in blocks]
            places = [(self.group[slot].number, block) for slot, block in blocks]
            self.moves.load(action.flight, places, found)
        return int(not fails)

    def _look_up(self, action: Any) -> set[int]:
        there = [
            [all(key in self.moves.values for key in keys) for keys in zip(*columns, strict=True)]
            for columns in (
                self.stored.keys(component, action.digests) for component in self.stored.components
            )
        ]
        there[0][: action.known_pages] = [True] * min(action.known_pages, len(there[0]))
        return {
            pages
            for pages in range(1, len(action.digests) + 1)
            if all(
                all(mine[max(0, pages - trailing) if trailing else 0 : pages])
                for mine, trailing in zip(there, action.trailing_pages, strict=True)
            )
        }

    def _fetch(self, action: Any, fails: bool) -> int:
        """fails: what is behind the first half is lost."""
        self._unread(action, "fetch")
        arrived = action.pages // 2 if fails else action.pages
        values = self.moves.values
        for item in self._items(action, written=False):
            depth = item.depth - action.first_page
            for key, pool in zip(item.keys, item.pools, strict=True):
                if depth >= arrived or key not in values:
                    arrived = min(arrived, depth)
                    values.pop(key, None)
                else:
                    pool.load(item.page, values[key])
        return int(arrived)

    def _store(self, action: Any, seen: Any, fails: bool) -> int:
        """fails: the second half is refused, and some times the store has lost everything."""
        same = [page.tobytes() for page in self._pages(action)] == seen
        need(same, "PIN-IO", "a host page was overwritten while it was stored", "store source")
        items = list(self._items(action, written=True))
        items = items[: len(items) // 2] if fails else items
        if fails and not action.flight % 3:
            self.moves.values.clear()
            self.moves.outages.count += 1
        for item in items:
            for key, pool in zip(item.keys, item.pools, strict=True):
                self.moves.values[key] = bytes(pool.buffers(item.page)[0])
        return len(items)

    # -- where it is

    def _blocks(self, action: Any) -> Iterator[tuple[str, int]]:
        """The blocks of a load or backup, each with its slot."""
        for copy in action.copies:
            blocks = copy.target if isinstance(action, actions.Load) else copy.source
            for block in blocks.tolist():
                yield copy.component, block

    def _pages(self, action: Any) -> list[Any]:
        """The bytes of every host page that an action reads or writes."""
        names: dict[tuple[str, int], None] = {}
        for copy in getattr(action, "copies", ()):
            pages = copy.source if isinstance(action, actions.Load) else copy.target
            component = self.group[copy.component].component
            names |= dict.fromkeys((component, page) for page in pages.tolist())
        for piece in getattr(action, "pieces", ()):
            names |= dict.fromkeys((piece.component, page) for page in piece.pages.tolist())
        return [self.page(*one) for one in names]

    def page(self, component: str, page: int) -> Any:
        return np.frombuffer(self.lent.buffers[component].buffers(page)[0], np.uint8)

    def _items(self, action: Any, written: bool) -> Iterator[Any]:
        for piece in action.pieces:
            yield from self.stored.items(piece, written=written)

    def _spoil(self, pages: list[Any]) -> None:
        for page in pages:
            page[:] = SPOILT

    def _unread(self, action: Any, what: str) -> None:
        spoilt = all((page == SPOILT).all() for page in self._pages(action))
        text = f"a host page was written by another while a {what} wrote it"
        need(spoilt, "PIN-IO", text, f"{what} target")

    def _put(self, slot: str, block: int, content: tuple[int, tuple[int, ...]]) -> None:
        for layer in self.group[slot].layers:
            mine = self.blocks[layer][block]
            words = np.zeros(mine.size, np.int64)
            words[: 2 + len(content[1])] = content[0], len(content[1]), *content[1]
            mine[...] = (words + self.salt[layer]).reshape(mine.shape)

    def _got(self, slot: str, block: int) -> tuple[int, tuple[int, ...]]:
        group = self.group[slot]
        return self.understood(group, [self.blocks[layer][block] for layer in group.layers])

    def understood(self, group: Any, layers: Sequence[Any]) -> tuple[int, tuple[int, ...]]:
        """The contents of which every layer has its words."""
        found = set()
        for layer, words in zip(group.layers, layers, strict=True):
            owner, count, *rows = (words.reshape(-1) - self.salt[layer]).tolist()
            whole = 0 <= count <= len(rows)
            found.add((owner, tuple(rows[:count])) if whole else (-1, ()))
        return found.pop() if len(found) == 1 else (-1, ())

    def on_host(self, slot: Any, page: Any) -> tuple[int, tuple[int, ...]]:
        """The contents of one block of a host page."""
        group = self.group[slot.name]
        parts = [
            page[start : start + plan.page_bytes].view(np.int64)
            for plan, start in self.lent.pools[slot.name]
        ]
        each = len(parts) // len(group.layers)
        layers = [np.concatenate(parts[at : at + each]) for at in range(0, len(parts), each)]
        return self.understood(group, layers)
