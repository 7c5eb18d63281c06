"""What every page holds, on both tiers and in a simulated storage, without moving a byte.

Content is (ids, length): `ids[i]` is the number of the prefix of i tokens. A page or state with
`length` tokens is right for a reader if the reader's id at its depth is the same. Copies happen as
late as the contract allows, and their targets are empty until then. A failed pass, or one without
its request, leaves empty pages. What is stored is a reference to the content that the host page
had, by component and digest, so what comes back is what was stored, right or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from hicache.core import actions, events
from hicache.core.actions import Fetch, Lookup, Outcome, Prefill, StateSlots, StorageAction, Store
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import StorageReply
from hicache.core.radix.node import Node
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from invariants.books.kinds import kinds_of

TOKEN = 8  # bytes
Arrives = Callable[[int, int], bool]


class Held(NamedTuple):
    """The first `length` tokens of the sequence of `ids`."""

    ids: list[int]
    length: int


class WrongContent(AssertionError):
    """A page that is read, cached or stored does not hold the content of its prefix."""

    def __init__(self, text: str, *about: About) -> None:
        super().__init__(text)
        self.about = about


class Content:
    """pages: by tier, component and page, what it holds. ids: by (number of a prefix, token), the
    number of the longer prefix; by (namespace,), that of an empty one."""

    def __init__(self, config: Config, pairs: bool = False) -> None:
        self.page = config.page_size
        self.pairs, self.stride = pairs, config.page_size * TOKEN * (1 + pairs)
        kinds = kinds_of(config)
        self.window = [kind.window for kind in kinds if kind.positional]
        self.names = list(config.components)
        self.positional = [kind.at for kind in kinds if kind.positional]
        self.pages: list[list[list[Held | None]]] = [
            [[None] * size for size in sizes] for sizes in (config.device_pages, config.host_pages)
        ]
        self.ids: dict[tuple[Any, ...], int] = {}
        self.spelled: dict[tuple[int, bytes], int] = {}  # by prefix and the row of its next page
        self.moving: dict[int, list[tuple[int, Pages, Pages, list[Held | None]]]] = {}
        self.tables: dict[int, tuple[Pages, ...]] = {}
        self.states: dict[int, tuple[StateSlots, ...]] = {}
        self.audited = 0  # number of nodes at the last audit

    def extend(self, ids: list[int], namespace: str, tokens: list[int]) -> None:
        """Numbers every prefix of `tokens`, beyond those that `ids` has."""
        if not ids:
            ids.append(self.ids.setdefault((namespace,), len(self.ids)))
        for token in tokens[len(ids) - 1 :]:
            ids.append(self.ids.setdefault((ids[-1], token), len(self.ids)))

    def see(self, item: Outcome) -> None:
        """Starts copies; records the tables and states of requests."""
        if isinstance(item, actions.Load | actions.Backup):
            self.begin_copy(item)
        elif isinstance(item, Prefill | actions.Granted | actions.Cached):
            self.tables[item.request] = item.tables
            self.states[item.request] = item.states

    def begin_copy(self, action: actions.Load | actions.Backup) -> None:
        tier = Tier.DEVICE if isinstance(action, actions.Load) else Tier.HOST
        moves = self.moving[action.flight] = []
        for copy in action.copies:
            index = self.names.index(copy.component)
            source, target = self.pages[1 - tier][index], self.pages[tier][index]
            moves.append((index, copy.source, copy.target, [source[page] for page in copy.source]))
            for page in copy.target:
                target[page] = None

    def end_copy(
        self, flight: int, tier: Tier, ok: bool, arrives: Arrives = lambda at, count: False
    ) -> None:
        """Ends a copy. arrives(at, count): which pages of a failed copy arrive. A second call does
        nothing; the pass that reads the pages may end the copy first.
        """
        for index, source, target, before in self.moving.pop(flight, ()):
            for at, (old, new, was) in enumerate(zip(source, target, before, strict=True)):
                held = self.pages[1 - tier][index][old]
                if held is not was:
                    self._changed(flight, 1 - tier, index, int(old), "read")
                self.pages[tier][index][new] = held if ok or arrives(at, len(before)) else None

    def _changed(self, flight: int, tier: int, index: int, page: int, how: str) -> NoReturn:
        name = self.names[index]
        text = f"flight {flight}: {name} page {page} changed while it was {how}"
        raise WrongContent(text, About("page", page, tier, name), About("flight", flight))

    def end_pass(self, action: Prefill, ids: list[int] | None) -> None:
        """Ends a pass over tokens start..end. ids: None if it failed or its request is gone."""
        start, end, about = action.start_token, action.end_token, About("flight", action.flight)
        who = f"pass {action.flight}"
        self._step(action.tables, ids, start, end, who, about)
        for pool, slots in self._slots(action.states):
            if ids is None:
                for page in (slots.working, *(page for _, page in slots.checkpoints)):
                    pool[page] = None
                continue
            if slots.source >= 0:
                pool[slots.working] = pool[slots.source]
            if start:
                _check(pool[slots.working], ids[start], start, True, who, about)
            pool[slots.working] = Held(ids, end)
            for depth, page in slots.checkpoints:
                if not start < depth <= end:
                    raise WrongContent(f"{who} over {start}..{end}: checkpoint at {depth}", about)
                pool[page] = Held(ids, depth)

    def decode(self, request: int, ids: list[int], start: int, end: int) -> None:
        """Generates tokens start..end, with one pass per token."""
        if start >= end:
            return
        who, about = f"decode of {request}", About("request", request)
        self._step(self.tables[request], ids, start, end, who, about)
        for pool, slots in self._slots(self.states[request]):
            _check(pool[slots.working], ids[start], start, True, who, about)
            pool[slots.working] = Held(ids, end)
            step = slots.interval
            for depth in range(start // step * step + step, end + 1, step):
                slot = slots.checkpoint_slots[depth // step % 2]
                if slot >= 0:
                    pool[slot] = Held(ids, depth)

    def _slots(
        self, states: tuple[StateSlots, ...]
    ) -> Iterator[tuple[list[Held | None], StateSlots]]:
        for slots in states:
            yield self.pages[Tier.DEVICE][self.names.index(slots.component)], slots

    def _step(
        self,
        tables: tuple[Pages, ...],
        ids: list[int] | None,
        start: int,
        end: int,
        who: str,
        about: About,
    ) -> None:
        """Reads the pages that tokens start..end attend to, and writes theirs."""
        size = self.page
        for index, window, table in zip(self.positional, self.window, tables, strict=True):
            pool, name = self.pages[Tier.DEVICE][index], self.names[index]
            first = max(0, start - window + 1)
            for at in range(first // size, -(-start // size) if ids is not None else 0):
                if table[at] < 0:
                    raise WrongContent(f"{who}: {name} at page {at}: there is none", about)
                depth = min(start, (at + 1) * size)
                known = ids[depth] if ids is not None else 0
                _check(pool[table[at]], known, depth, False, f"{who}: {name} page {at}", about)
            for at in range(start // size, -(-end // size) if end > start else 0):
                if table[at] < 0:
                    raise WrongContent(f"{who}: {name}: no page {at} to write", about)
                pool[table[at]] = None if ids is None else Held(ids, min(end, (at + 1) * size))

    def audit(self, view: CoreView) -> None:
        """Checks the content of every cached page on both tiers. Raises WrongContent."""
        ends: dict[int, int] = {}  # by node: the number of its prefix
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
                    pool, end = self.pages[tier][index], (node.end_page - len(at)) * self.page
                    for page, name in zip(pages.tolist(), at, strict=True):
                        end += self.page
                        held = pool[page]
                        fits = held is not None and held.length >= end and held.ids[end] == name
                        if not fits or not (paged or held is None or held.length == end):
                            about = About("page", page, tier, self.names[index])
                            who = f"{node} {about} ends at {end}"
                            _check(held, name, end, not paged, who, about, About("node", node.id))
        self.audited = len(ends)

    def _names(self, node: Node, ends: dict[int, int]) -> list[int]:
        """Returns the numbers of the prefixes that end with each page of a node."""
        above, found = node.parent, []
        assert above is not None
        if above.parent is None:
            name = self.ids.setdefault((namespace_of(node, self.stride),), len(self.ids))
        else:
            name = ends[above.id]
        for at in range(0, len(node.key), self.stride):
            row = bytes(node.key[at : at + self.stride])
            known = self.spelled.get((name, row))
            if known is None:
                known = name
                for token in tokens_of(row, self.pairs):
                    known = self.ids.setdefault((known, token), len(self.ids))
                self.spelled[name, row] = known
            found.append(known)
            name = known
        return found


def _check(held: Held | None, known: int, depth: int, exact: bool, who: str, *about: About) -> None:
    """Raises WrongContent unless a page holds the `depth` tokens of the prefix of this number; with
    `exact`, and no more."""
    if held is None or held.length < depth or (exact and held.length != depth):
        found = "nothing" if held is None else f"{held.length} tokens"
        raise WrongContent(f"{who}: expected content up to {depth} tokens, found {found}", *about)
    if held.ids[depth] != known:
        raise WrongContent(f"{who}: another prefix of {depth} tokens", *about)


# -- what the keys of a tree say


def namespace_of(node: Node, stride: int) -> str:
    """The namespace of a child of the root."""
    return node.label[:-stride].rstrip(b"\0").decode()


def tokens_of(path: bytes, pairs: bool) -> list[int]:
    """Returns the tokens of rows; of a token pair, the second one."""
    row = 2 * TOKEN if pairs else TOKEN
    return [
        int.from_bytes(path[at - TOKEN : at], "little") for at in range(row, len(path) + 1, row)
    ]


def prefixes(
    view: CoreView, stride: int, wanted: Callable[[Node], bool]
) -> list[tuple[bytes, str]]:
    """Returns the rows and the namespaces of the prefixes that end with a node that is wanted."""
    paths: dict[int, tuple[bytes, str]] = {}
    found = []
    for node in view.nodes():
        above = node.parent
        assert above is not None
        if above.parent is None:
            path = (bytes(node.key), namespace_of(node, stride))
        else:
            rows, namespace = paths[above.id]
            path = (rows + node.key, namespace)
        paths[node.id] = path
        if wanted(node):
            found.append(path)
    return found


# -- storage


class Shelf:
    """values: what is stored, by component and digest."""

    def __init__(self, config: Config) -> None:
        self.names = config.components
        self.values: dict[tuple[int, bytes], Held | None] = {}
        self._reading: dict[int, list[Held | None]] = {}  # by store, what its pages held before

    def lose(self) -> None:
        """Everything that is stored is lost, and nobody is told."""
        self.values.clear()

    def close(self) -> None:
        """Ends what it started. Does nothing here."""

    def begin(self, action: StorageAction, content: Content | None) -> None:
        """The action was issued: from now on it reads or fills its host pages."""
        if content is None:
            return
        host = content.pages[Tier.HOST]
        if isinstance(action, Store):
            pages = self._pages(action)
            self._reading[action.flight] = [host[index][page] for index, _, page, _ in pages]
        elif isinstance(action, Fetch):
            for index, _, page, _ in self._pages(action):
                host[index][page] = None

    def reply(self, action: StorageAction, kind: Any, content: Content | None) -> StorageReply:
        """Carries out an action under a fault (hand.Fault), and returns its reply."""
        if isinstance(action, actions.Delete):
            if kind.fine:
                self.values.clear()
            return events.DeleteDone(action.flight, kind.fine)
        if isinstance(action, Lookup):
            found = self.found(action.digests, action.trailing_pages, action.known_pages)
            said = kind.says(found, len(action.digests)) if kind.fine else 0
            return events.LookupDone(action.flight, said)
        if isinstance(action, Fetch):
            arrived = self._fetch(action, content)
            return events.FetchDone(
                action.flight, kind.says(arrived, action.pages) if kind.fine else 0
            )
        return events.StoreDone(action.flight, self._store(action, kind, content))

    def _pages(self, action: Fetch | Store) -> Iterator[tuple[int, bytes, int, int]]:
        """Component, digest, host page and depth of each page of an action."""
        for piece in action.pieces:
            index = self.names.index(piece.component)
            pages = zip(piece.digests, piece.pages.tolist(), strict=True)
            for depth, (digest, page) in enumerate(pages, piece.first_page):
                yield index, digest, page, depth

    def found(self, digests: Sequence[bytes], trailing_pages: Sequence[int], known: int = 0) -> int:
        """The deepest boundary for which everything is there; see `Lookup`."""
        whole = len(digests)
        for index, trailing in enumerate(trailing_pages):
            for at in range(0 if index else known, 0 if trailing else whole):
                if (index, digests[at]) not in self.values:
                    whole = at
                    break
        while whole and not all(
            (index, digest) in self.values
            for index, trailing in enumerate(trailing_pages)
            if trailing
            for digest in digests[max(0, whole - trailing) : whole]
        ):
            whole -= 1
        return whole

    def boundaries(self, action: Lookup) -> set[int]:
        """All boundaries for which everything is there; `found` is the deepest."""
        return {
            end
            for end in range(1, len(action.digests) + 1)
            if self.found(action.digests[:end], action.trailing_pages, action.known_pages) == end
        }

    def _fetch(self, action: Fetch, content: Content | None) -> int:
        """Fills the host pages with what is there. Returns up to where everything has arrived."""
        arrived = action.pages
        for index, digest, page, depth in self._pages(action):
            if (index, digest) not in self.values:
                arrived = min(arrived, depth - action.first_page)
            elif content is not None:
                content.pages[Tier.HOST][index][page] = self.values[index, digest]
        return arrived

    def _store(self, action: Store, kind: Any, content: Content | None) -> int:
        pages = list(self._pages(action))
        said = kind.says(len(pages), len(pages)) if kind.fine else 0
        before = self._reading.pop(action.flight, [None] * len(pages))
        for (index, digest, page, _), was in list(zip(pages, before, strict=True))[
            : kind.kept(said)
        ]:
            if content is not None and content.pages[Tier.HOST][index][page] is not was:
                content._changed(action.flight, Tier.HOST, index, page, "stored")
            self.values[index, digest] = was
        return said
