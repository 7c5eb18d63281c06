"""Runs the specification beside a core and compares the outcomes of every event.

Outcomes must be equal and in the same order, with these liberties:

    page numbers     names. Two pages are the same if the outcomes before named them together, until
                     the specification has no use for the page any more
    transfer numbers   names, paired when the action appears
    evictions        `Evicted`, and the KV events of routers, may stand anywhere among the outcomes
                     of an event, page by page; what they say of one page is in order

Knows outcomes only: it reads nothing from the core.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import numpy as np

from hicache.core import actions, events
from hicache.core.config import Config
from hicache.core.types import Record, Tier

from .cache import Cache
from .kinds import Policies
from .reading import Reading, Who, facts
from .records import as_pages
from .specification import handle

_REPLIES = (
    events.BackupDone,
    events.LoadDone,
    events.PrefillDone,
    events.LookupDone,
    events.FetchDone,
    events.StoreDone,
    events.DeleteDone,
)
_ACTIONS = (
    actions.Backup,
    actions.Load,
    actions.Prefill,
    actions.Lookup,
    actions.Fetch,
    actions.Store,
    actions.Delete,
)
_COPIES, _OF_PIECES, _OF_TABLES = (
    (actions.Load, actions.Backup),
    (actions.Fetch, actions.Store),
    (actions.Prefill, actions.Granted, actions.Cached),
)
_ANYWHERE = (actions.Evicted, actions.KvStored, actions.KvRemoved)
_PLAIN = {  # of which every field says the same in the core and here
    kind
    for kind in get_args(actions.Outcome)
    if not {*kind.__struct_fields__} & {"transfer", "after", "tables"}
}
Place = tuple[int, str, int]  # tier, component, page


class Differs(AssertionError):
    """The core answers otherwise than the specification. at: the index of the core's outcome that
    differs, or the number of its outcomes if one is missing. expected, actual: the outcomes."""

    def __init__(
        self, text: str, at: int, expected: actions.Outcome | None, actual: actions.Outcome | None
    ) -> None:
        super().__init__(text)
        self.at, self.expected, self.actual = at, expected, actual


class Lockstep:
    """One specification beside one core. policies: what the core's policies declare. view: the
    state from which it begins; None: an empty cache."""

    def __init__(self, config: Config, policies: Policies, view: Any = None) -> None:
        self.cache, self.policies, self.config = Cache(config, policies), policies, config
        self._transfers: dict[int, int] = {}  # of the core: that of the specification
        # By tier and component, page of the core: that of the specification.
        self._pages: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
        self._paired: dict[int, int] = {}  # page of the specification: number in the core
        self._used: dict[tuple[int, str], set[int]] = {}  # in the current comparison
        self._per_page = [kind.name for kind in self.cache.kinds if kind.per_page]
        if view is not None:
            self.cache = self._shown_by(view)

    def _shown_by(self, view: Any) -> Cache:
        """The state that a core shows. Pages that no outcome has named yet get new names."""
        names = self.config.components

        def named(tier: int, kind: int, numbers: list[int]) -> list[int]:
            known = self._pages[tier, names[kind]]
            if fresh := [number for number in numbers if number not in known]:
                pages = self.cache.new_pages(len(fresh))
                known.update(zip(fresh, pages, strict=True))
                self._paired.update(zip(pages, fresh, strict=True))
            return [known[number] for number in numbers]

        cache = Reading(view, self.policies, named, self._transfers).cache
        cache.last_page = self.cache.last_page
        return cache

    def state_differs(self, view: Any) -> tuple[Who, str] | None:
        """Where the core shows another state, and how; None if it is the same."""
        numbers = sorted(node.id for node in view.nodes())
        mine, shown = facts(self.cache, numbers), self._shown_by(view)
        other = facts(shown, numbers)
        shown.forget()
        for who in {**mine, **other} if mine != other else ():
            expected, actual = mine.get(who, {}), other.get(who, {})
            for name in {**expected, **actual}:
                if expected.get(name) != actual.get(name):
                    text = f"expected {expected.get(name)}, found {actual.get(name)}"
                    return who, f"{who[0]} {who[1]}, {name}: {text}"
        return None

    def compare(self, event: events.Event, outcomes: Sequence[actions.Outcome]) -> None:
        """Raises Differs if the specification answers otherwise to an event that a core took."""
        if isinstance(event, _REPLIES):
            event = event._replace(transfer=self._transfers.pop(event.transfer))
        expected = handle(self.cache, event)
        self._used.clear()
        evicted = _by_page(item for item in expected if type(item) is actions.Evicted)
        waiting = [item for item in expected if type(item) not in _ANYWHERE]
        for at, item in enumerate(outcomes):
            if isinstance(item, actions.Evicted):
                self._compare_eviction(at, item, evicted)
            elif type(item) not in _ANYWHERE:
                if not waiting:
                    raise Differs("expected no further outcome", at, None, item)
                self._compare_item(at, waiting.pop(0), item)
        if waiting:
            raise Differs("an outcome is missing", len(outcomes), waiting[0], None)
        if evicted:
            missing = next(item for item in expected if isinstance(item, actions.Evicted))
            raise Differs(f"{len(evicted)} evictions are missing", len(outcomes), missing, None)
        mine, other = _router_news(expected), _router_news(outcomes)
        for tier, digest in sorted({*mine, *other}) if mine != other else ():
            pair = mine.get((tier, digest), "nothing"), other.get((tier, digest), "nothing")
            if pair[0] != pair[1]:
                where = f"KV events of page {digest.hex()[:8]} on {Tier(tier).name.lower()}"
                text = f"{where}: expected {pair[0]}, found {pair[1]}"
                raise Differs(text, len(outcomes), None, None)

    def in_numbers_of_core(self, value: Any, name: str = "") -> Any:
        """An outcome of the specification with the core's page and transfer numbers; -1 where the
        core has not named the page or transfer yet. name: of the field."""
        if isinstance(value, np.ndarray):
            return as_pages([self._paired.get(page, -1) for page in value.tolist()])
        if name == "checkpoints":
            return tuple((tokens, self._paired.get(page, -1)) for tokens, page in value)
        if isinstance(value, tuple | Record):
            names = getattr(value, "_fields", [name] * len([*value]))
            values = [*map(self.in_numbers_of_core, value, names)]
            return type(value)(*values) if hasattr(value, "_fields") else tuple(values)
        if name in ("source", "working", "checkpoint_slots"):
            return self._paired.get(value, -1)
        if name in ("transfer", "after") and value:
            transfers = {mine: other for other, mine in self._transfers.items()}
            return transfers.get(value, -1)
        return value

    def _compare_item(self, at: int, expected: actions.Outcome, actual: actions.Outcome) -> None:
        if type(expected) is not type(actual):
            raise Differs("another outcome was expected", at, expected, actual)
        if type(expected) in _PLAIN and expected == actual:
            return
        if isinstance(expected, _ACTIONS) and isinstance(actual, _ACTIONS):
            self._transfers[actual.transfer] = expected.transfer
        fields: Any = zip(expected._fields, expected, actual, strict=True)
        for name, pieces, other in fields:
            if name == "transfer" and isinstance(expected, actions.Abandoned):
                other = self._renamed(other)
            elif name in ("transfer", "copies", "tables"):
                continue
            elif name == "pieces":
                pieces, other = [piece[:3] for piece in pieces], [piece[:3] for piece in other]
            elif name == "states":
                pieces, other = [_without_pages(pieces), _without_pages(other)]
            elif name == "after":
                other = self._renamed(other)
            if pieces != other:
                raise Differs(f"{name}: expected {pieces}, found {other}", at, expected, actual)
        places, others = self._places(expected), self._places(actual)
        names = [self._pages[tier, name].get(number, -1) for tier, name, number in others]
        if [page for *_, page in places] == names:
            return
        if [place[:2] for place in places] != [place[:2] for place in others]:
            raise Differs("expected pages of other tables or copies", at, expected, actual)
        for (_, _, page), place in zip(places, others, strict=True):
            if self._pages[place[:2]].get(place[2], -1) != page:
                self._pair(at, page, place, expected, actual)

    def _renamed(self, after: Any) -> Any:
        if isinstance(after, tuple):
            return tuple(self._transfers.get(item, -1) for item in after)
        return self._transfers.get(after, -1) if after else 0

    def _pair(
        self, at: int, page: int, place: Place, expected: actions.Outcome, actual: actions.Outcome
    ) -> None:
        """From now on these two pages are the same. Neither may still be another one."""
        tier, component, number = place
        before = self._pages[tier, component].get(number)
        other = before is not None and before in self._in_use(tier, component)
        if page >= 0 and number >= 0 and not other and page not in self._paired:
            self._pages[tier, component][number], self._paired[page] = page, number
            return
        here = f"{Tier(tier).name.lower()} page {number} of {component}"
        if page < 0:
            raise Differs(f"expected no page of {component}, found {here}", at, expected, actual)
        if number < 0:
            raise Differs(f"expected a page of {component}, found none", at, expected, actual)
        if other:
            raise Differs(f"{here} still has other content", at, expected, actual)
        raise Differs(f"{here}: expected page {self._paired[page]}", at, expected, actual)

    def _in_use(self, tier: int, component: str) -> set[int]:
        """The pages of a pool that are in use after the event, as the specification numbers
        them."""
        used = self._used.get((tier, component))
        if used is None:
            kind = self.config.components.index(component)
            used = self._used[tier, component] = self.cache.used(tier, kind)
        return used

    def _compare_eviction(
        self, at: int, result: actions.Evicted, evicted: dict[Place, tuple[int, bool]]
    ) -> None:
        tier, name = int(result.tier), result.component
        for number in result.pages.tolist():
            page = self._pages[tier, name].get(number, -1)
            expected = evicted.pop((tier, name, page), None)
            if expected is None:
                raise Differs(f"page {number} was not to be evicted", at, None, result)
            if expected != (result.last_use, result.demoted):
                text = f"eviction of page {number}: expected last use and demoted {expected}"
                raise Differs(text, at, None, result)

    def _places(self, item: actions.Outcome) -> list[Place]:
        """Every page that an outcome names, in order."""
        if isinstance(item, _COPIES):
            source, target = (1, 0) if type(item) is actions.Load else (0, 1)
            return [
                place
                for copy in item.copies
                for value, other in zip(copy.source.tolist(), copy.target.tolist(), strict=True)
                for place in ((source, copy.component, value), (target, copy.component, other))
            ]
        if isinstance(item, _OF_PIECES):
            return [
                (1, part.component, page) for part in item.pieces for page in part.pages.tolist()
            ]
        if not isinstance(item, _OF_TABLES):
            return []
        tables = zip(self._per_page, item.tables, strict=True)
        places = [(0, component, page) for component, table in tables for page in table.tolist()]
        for slots in item.states:
            stored = (page for _, page in slots.checkpoints)
            pages = (slots.source, slots.working, *slots.checkpoint_slots, *stored)
            places += [(0, slots.component, page) for page in pages]
        return places


def _without_pages(states: Iterable[actions.StateSlots]) -> list[tuple[Any, ...]]:
    return [
        (item.component, item.interval, [depth for depth, _ in item.checkpoints]) for item in states
    ]


def _by_page(items: Iterable[actions.Evicted]) -> dict[Place, tuple[int, bool]]:
    return {
        (int(item.tier), item.component, page): (item.last_use, item.demoted)
        for item in items
        for page in item.pages.tolist()
    }


def _router_news(items: Iterable[actions.Outcome]) -> dict[tuple[int, bytes], str]:
    """By tier and page digest: what KV events say of it, in order."""
    news: dict[tuple[int, bytes], str] = {}
    for item in items:
        if type(item) is actions.KvStored or type(item) is actions.KvRemoved:
            word = "stored" if isinstance(item, actions.KvStored) else "removed"
            for digest in item.digests:
                before = news.get((int(item.tier), digest), "")
                news[int(item.tier), digest] = f"{before} {word}".strip()
    return news
