"""Simulates the content of every page: an executor that records prefixes instead of moving bytes.

Content is (ids, length). `ids[i]` is the number of the prefix of i tokens. A page or state with
`length` tokens is right for a reader if the reader's id at its depth is the same. Copies happen as
late as the contract allows, and their targets are empty until then. A failed pass, or one without
its request, leaves empty pages. Does not know why a page was chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from hicache.core.actions import Backup, Cached, Granted, Load, Outcome, Prefill, StateSlots
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.radix.node import Node
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from invariants.books.kinds import kinds_of
from invariants.fuzz.hicache.spell import TOKEN, tokens_of

Arrives = Callable[[int, int], bool]


_COPIES = (Load, Backup)
_TABLES = (Prefill, Granted, Cached)


class Held(NamedTuple):
    """The first `length` tokens of the sequence of `ids`."""

    ids: list[int]
    length: int


class WrongContent(AssertionError):
    """A page that is read or cached does not hold the content of its prefix."""

    def __init__(self, text: str, *about: About) -> None:
        super().__init__(text)
        self.about = about


class Content:
    def __init__(self, config: Config, pairs: bool = False) -> None:
        self.page = config.page_size
        self.pairs, self.row = pairs, TOKEN * (2 if pairs else 1)  # bytes of a position in a key
        kinds = kinds_of(config)
        self.window = [kind.window for kind in kinds if kind.positional]
        self.names = list(config.components)
        self.positional = [kind.at for kind in kinds if kind.positional]
        self.pages: list[list[list[Held | None]]] = [
            [[None] * size for size in sizes] for sizes in (config.device_pages, config.host_pages)
        ]
        self.ids: dict[tuple[Any, ...], int] = {}
        self.moving: dict[int, list[tuple[int, Pages, Pages, list[Held | None]]]] = {}
        self.tables: dict[int, tuple[Pages, ...]] = {}
        self.states: dict[int, tuple[StateSlots, ...]] = {}
        # from (number of a prefix, row) to the number of the longer prefix
        self.spelled: dict[tuple[int, bytes], int] = {}
        self.audited = 0  # number of nodes at the last audit

    def extend(self, ids: list[int], namespace: str, tokens: list[int]) -> None:
        """Numbers every prefix of `tokens` (of a request, or of a node's path)."""
        if not ids:
            ids.append(self.ids.setdefault((namespace,), len(self.ids)))
        for token in tokens[len(ids) - 1 :]:
            ids.append(self.ids.setdefault((ids[-1], token), len(self.ids)))

    def see(self, item: Outcome) -> None:
        """Starts copies; records the tables and states of Prefill, Granted and Cached."""
        if isinstance(item, _COPIES):
            self.begin_copy(item)
        elif isinstance(item, _TABLES):
            self.tables[item.request] = item.tables
            self.states[item.request] = item.states

    # -- copies

    def begin_copy(self, action: Load | Backup) -> None:
        tier = Tier.DEVICE if isinstance(action, Load) else Tier.HOST
        moves = []
        for copy in action.copies:
            index = self.names.index(copy.component)
            source, target = self.pages[1 - tier][index], self.pages[tier][index]
            moves.append((index, copy.source, copy.target, [source[page] for page in copy.source]))
            for page in copy.target:
                target[page] = None
        self.moving[action.flight] = moves

    def end_copy(
        self, flight: int, tier: Tier, ok: bool, arrives: Arrives = lambda at, count: False
    ) -> None:
        """Ends a copy. arrives(at, count): which pages of a failed copy arrive. A second call does
        nothing; the pass that reads the pages may end the copy first.
        """
        for index, source, target, before in self.moving.pop(flight, ()):
            count = len(before)
            for at, (old, new, was) in enumerate(zip(source, target, before, strict=True)):
                found = self.pages[1 - tier][index][old]
                if found is not was:
                    raise WrongContent(
                        f"flight {flight}: {self.names[index]} page {old} changed while it "
                        "was read",
                        About("page", int(old), 1 - tier, self.names[index]),
                        About("flight", flight),
                    )
                self.pages[tier][index][new] = found if ok or arrives(at, count) else None

    # -- passes

    def end_pass(self, action: Prefill, ids: list[int] | None) -> None:
        """Ends a pass over tokens start..end. ids: None if it failed or its request is gone."""
        start, end = action.start_token, action.end_token
        tables = action.tables
        passed = About("flight", action.flight)
        if ids is not None:
            for at in range(len(tables)):
                self._read(at, tables[at], ids, start, f"pass {action.flight}", passed)
        self._write(tables, ids, start, end, passed)
        for index, slots in self._slots(action.states):
            pool = self.pages[Tier.DEVICE][index]
            if ids is None:
                for page in (slots.working, *(page for _, page in slots.checkpoints)):
                    pool[page] = None
                continue
            if slots.source >= 0:
                pool[slots.working] = pool[slots.source]
            if start and not _fits(pool[slots.working], ids, start, exact=True):
                _wrong(
                    pool[slots.working],
                    start,
                    True,
                    f"state of pass {action.flight}",
                    About("request", action.request),
                    passed,
                )
            pool[slots.working] = Held(ids, end)
            for depth, page in slots.checkpoints:
                if not start < depth <= end:
                    raise WrongContent(
                        f"a checkpoint at {depth} of a pass over {start}..{end}", passed
                    )
                pool[page] = Held(ids, depth)

    def decode(self, request: int, ids: list[int], start: int, end: int) -> None:
        """Generates tokens start..end, with one pass per token."""
        if start >= end:
            return
        tables, whose = self.tables[request], About("request", request)
        for at in range(len(tables)):
            self._read(at, tables[at], ids, start, f"decode of {request} at {start}", whose)
        self._write(tables, ids, start, end, whose)
        for index, slots in self._slots(self.states[request]):
            pool = self.pages[Tier.DEVICE][index]
            if not _fits(pool[slots.working], ids, start, exact=True):
                _wrong(pool[slots.working], start, True, f"state of {request} at {start}", whose)
            pool[slots.working] = Held(ids, end)
            step = slots.interval
            for depth in range(start // step * step + step, end + 1, step):
                slot = slots.checkpoint_slots[depth // step % 2]
                if slot >= 0:
                    pool[slot] = Held(ids, depth)

    def _slots(self, states: tuple[StateSlots, ...]) -> list[tuple[int, StateSlots]]:
        return [(self.names.index(slots.component), slots) for slots in states]

    def _read(
        self, at: int, table: Pages, ids: list[int], start: int, who: str, whose: About
    ) -> None:
        first = max(0, start - self.window[at] + 1)
        pool = self.pages[Tier.DEVICE][self.positional[at]]
        whole = range(first // self.page, -(-start // self.page)) if first < start else range(0)
        half = [start // self.page] if start % self.page else []
        for page in dict.fromkeys((*whole, *half)):
            depth, number = min(start, (page + 1) * self.page), table[page]
            if number < 0 or not _fits(pool[number], ids, depth, exact=False):
                name = f"{who}: {self.names[self.positional[at]]} at page {page}"
                if number < 0:
                    raise WrongContent(f"{name}: there is none", whose)
                _wrong(pool[number], depth, False, name, whose)

    def _write(
        self,
        tables: tuple[Pages, ...],
        ids: list[int] | None,
        start: int,
        end: int,
        whose: About,
    ) -> None:
        for at, table in enumerate(tables):
            pool = self.pages[Tier.DEVICE][self.positional[at]]
            for page in range(start // self.page, -(-end // self.page) if end > start else 0):
                if table[page] < 0:
                    raise WrongContent(
                        f"{self.names[self.positional[at]]}: no page {page} to write", whose
                    )
                depth = min(end, (page + 1) * self.page)
                pool[table[page]] = None if ids is None else Held(ids, depth)

    # -- the tree

    def audit(self, view: CoreView) -> None:
        """Checks the content of every cached page on both tiers. Raises WrongContent."""
        ends: dict[int, int] = {}  # by node: the number of its prefix
        size = self.page
        for node in view.nodes():
            names = self._names(node, ends)
            ends[node.id] = names[-1]
            for index in range(len(self.names)):
                paged = index in self.positional
                at = names if paged else names[-1:]
                for tier in (0, 1):
                    pages = node.pages[tier][index]
                    if pages is None:
                        continue
                    pool, end = self.pages[tier][index], (node.end_page - len(at)) * size
                    for page, name in zip(pages.tolist(), at, strict=True):
                        end += size
                        held = pool[page]
                        fits = held is not None and held.length >= end and held.ids[end] == name
                        if not fits or not (paged or held is None or held.length == end):
                            who = f"{node} {self.names[index]} tier {tier} page {page}"
                            _wrong(
                                held,
                                end,
                                not paged,
                                f"{who} ends at {end // size}",
                                About("page", page, tier, self.names[index]),
                                About("node", node.id),
                            )
        self.audited = len(ends)

    def _names(self, node: Node, ends: dict[int, int]) -> list[int]:
        """Returns the numbers of the prefixes that end with each page of a node."""
        stride = self.row * self.page
        above = node.parent
        assert above is not None
        if above.parent is None:
            namespace = node.label[:-stride].rstrip(b"\0").decode()
            name = self.ids.setdefault((namespace,), len(self.ids))
        else:
            name = ends[above.id]
        found = []
        for at in range(0, len(node.key), stride):
            row = bytes(node.key[at : at + stride])
            known = self.spelled.get((name, row))
            if known is None:
                known = name
                for token in tokens_of(row, self.pairs):
                    known = self.ids.setdefault((known, token), len(self.ids))
                self.spelled[name, row] = known
            found.append(known)
            name = known
        return found


def _fits(held: Held | None, ids: list[int], depth: int, exact: bool) -> bool:
    """Whether a page holds the first `depth` tokens of `ids`; with `exact`, and no more."""
    if held is None or held.length < depth or (exact and held.length != depth):
        return False
    return held.ids[depth] == ids[depth]


def _wrong(held: Held | None, depth: int, exact: bool, who: str, *about: About) -> NoReturn:
    """Raises WrongContent, with the content found instead of the first `depth` tokens."""
    if held is None or held.length < depth or (exact and held.length != depth):
        found = "nothing" if held is None else f"{held.length} tokens"
        raise WrongContent(f"{who}: expected content up to {depth} tokens, found {found}", *about)
    raise WrongContent(f"{who}: another prefix of {depth} tokens", *about)
