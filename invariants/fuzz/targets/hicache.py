"""This project's own core as a peer: the first one, with which the harness is tried without a
download. It is judged by the laws for peers alone, not by its own checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hicache.core.actions import Action, Admitted, Granted, Matched, Outcome, Prefill, Refused
from hicache.core.actions import Backup as CoreBackup
from hicache.core.actions import Load as CoreLoad
from hicache.core.components.swa import Settings as Window
from hicache.core.config import Config as CoreConfig
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    MatchWanted,
    PagesWanted,
)
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.content import WrongContent
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.records import Job
from invariants.fuzz.script import Recorder
from invariants.fuzz.target import (
    Backup,
    Broken,
    Can,
    Config,
    Hit,
    Load,
    Peer,
    PoolState,
    Transfer,
    Unfit,
    need,
)
from invariants.fuzz.targets._hicache_doubles import pools_of
from invariants.watch import Watch

DISTRIBUTION = ""
RELEASES = ("here",)
PACKAGE = "hicache"
DOUBLES = ("_hicache_doubles.py",)

COMPONENTS = ("full", "full+swa")
POLICIES = ("write_through", "write_through_selective", "write_back")
ORDERS = ("lru", "lfu", "fifo", "slru")
HANDLE = ".handle"


class HicachePeer(Peer):
    can = Can(
        host=True,
        fails=True,
        namespaces=True,
        evicts=("device full", "device swa", "host full", "host swa"),
    )
    TAKES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "components": COMPONENTS,
        "policy": POLICIES,
        "order": ORDERS,
        "page": (),
        "pages": (),
        "host": (),
        "window": (),
    }
    REACHES = (
        *("hit on device", "hit on host", "evicted slots", "refused", "refused growth"),
        *("load began", "backup began", "emptied"),
    )

    def __init__(self, config: Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        self.names = tuple(str(config["components"]).split("+"))
        windows = [Window(config["window"])] if "swa" in self.names else []
        try:
            made = CoreConfig(
                page_size=config["page"],
                device_pages=(config["pages"],) * len(self.names),
                host_pages=(config["host"],) * len(self.names),
                components=self.names,
                write_policy=config["policy"],
                eviction_policy=config["order"],
                settings=tuple(windows),
            )
            self.hand = Hand(made, watch=Watch("off"))
        except CallerError as error:
            raise Unfit(str(error)) from error
        if recorder.on:
            recorder.note(f"core = {recorder.reference(Core)}({recorder.spell(made)})")
            self.hand.observe(self)
        self.core = recorder.wrap("core", self.hand.core)
        self.began: list[Transfer] = []
        self.known: set[int] = set()
        self.numbers = 0

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        pages = draws.between(6, 30)
        drawn = {
            "components": draws.one(COMPONENTS),
            "policy": draws.one(POLICIES),
            "order": draws.one(ORDERS),
            "page": draws.one((1, 1, 2, 4)),
            "pages": pages,
            "host": draws.one((0, pages, 2 * pages, 4)),
            "window": draws.one((1, 2, 4, 8)),
        }
        return drawn | fixed

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        plain = {"components": "full", "policy": "write_through", "order": "lru", "host": 0}
        found = [config | {key: value} for key, value in plain.items() if config[key] != value]
        for key in ("page", "pages", "host", "window"):
            found += [config | {key: less} for less in (1, config[key] - 1) if less < config[key]]
        return [one for one in found if one["pages"] and one["page"] and one["window"]]

    # -- an observer, where a script is written

    def on_event(self, event: Event, view: CoreView) -> None:
        self.recorder.note(f"core{HANDLE}({self.recorder.spell(event)})")

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        """The outcomes need no line."""

    # -- the verbs

    def feed(self, event: Event) -> list[Outcome]:
        """Feeds an event, and carries out the passes that it begins."""
        try:
            outcomes = self.hand.feed(event)
            for one in list(self.hand.pending):
                if isinstance(one.action, Prefill):
                    self.hand.take(one)
        except WrongContent as error:
            raise Broken("BYTES", str(error)) from error
        for one in self.hand.pending:
            if one.number not in self.known:
                self.known.add(one.number)
                kinds: dict[type[Action], type[Transfer]] = {CoreLoad: Load, CoreBackup: Backup}
                self.began.append(kinds[type(one.action)](one.number))
        return outcomes

    def _arrive(self, job: Job) -> None:
        hand, page = self.hand, self.hand.config.page_size
        if job.id in hand.jobs:
            return
        mine = Job(job.id, list(job.tokens), job.namespace, len(job.tokens))
        hand.jobs[job.id] = mine
        assert hand.content is not None
        hand.content.extend(mine.ids, mine.namespace, mine.tokens)
        size = len(mine.tokens)
        self.feed(Arrived(job.id, hand.key(mine, size), size, (size - 1) // page))

    def match(self, job: Job) -> Hit:
        number = job.id
        if number < 0:
            self.numbers += 1
            number = (1 << 20) + self.numbers
        self._arrive(Job(number, job.tokens, job.namespace, len(job.tokens)))
        found = self._of(Matched, self.feed(MatchWanted(number)))
        self._judge_match(job, found)
        if number != job.id:
            self._drop(number)
        page = self.hand.config.page_size
        return Hit(found.device_pages * page, found.host_pages * page)

    def _drop(self, number: int) -> None:
        self.feed(Aborted(number))
        del self.hand.jobs[number]

    def _judge_match(self, job: Job, found: Matched) -> None:
        """With full attention alone, a look-up finds exactly the leading pages that are cached."""
        if len(self.names) > 1:
            return
        page, view = self.hand.config.page_size, self.hand.core.view
        key = self.hand.key_of(job.tokens, job.namespace)
        rows = [key.raw[at : at + key.stride] for at in range(0, len(key.raw), key.stride)]
        there: dict[tuple[str, tuple[bytes, ...]], bool] = {}  # by path: whether it is on device
        spaces = {view.root.id: ""}
        paths: dict[int, tuple[bytes, ...]] = {view.root.id: ()}
        for node in view.nodes():
            above = node.parent
            assert above is not None
            label = node.label[: -key.stride].rstrip(b"\0").decode()
            spaces[node.id] = spaces[above.id] or label
            path = paths[above.id]
            for at in range(0, len(node.key), key.stride):
                path = (*path, bytes(node.key[at : at + key.stride]))
                there[spaces[node.id], path] = node.pages[Tier.DEVICE][0] is not None
            paths[node.id] = path
        known = [
            there.get((job.namespace, tuple(rows[: end + 1])))
            for end in range((len(job.tokens) - 1) // page)
        ]
        length = known.index(None) if None in known else len(known)
        device = sum(bool(one) for one in known[:length])
        want = (device, length - device)
        text = f"expected {want[0]} pages on device and {want[1]} on host, found {found}"
        need((found.device_pages, found.host_pages) == want, "MATCH", text)

    def admit(self, job: Job) -> Hit | None:
        self._arrive(job)
        outcomes = self.feed(AdmitWanted(job.id, 1))
        if any(isinstance(one, Refused) for one in outcomes):
            self._drop(job.id)
            return None
        found = self._of(Admitted, outcomes)
        mine, page = self.hand.jobs[job.id], self.hand.config.page_size
        job.computed = mine.computed
        return Hit(found.device_pages * page, found.host_pages * page)

    def prefill(self, job: Job, until: int) -> bool:
        if self.hand.jobs[job.id].stage == "decoding":
            return True
        outcomes = self.feed(ContinueWanted(job.id, until - job.computed))
        return all(not isinstance(one, Refused) for one in outcomes)

    def decode(self, job: Job, tokens: Sequence[int]) -> bool:
        mine = self.hand.jobs[job.id]
        outcomes = self.feed(PagesWanted(job.id, len(mine.tokens) + len(tokens), mine.committed))
        if not any(isinstance(one, Granted) for one in outcomes):
            return False
        mine.tokens += tokens
        before, mine.committed = mine.committed, len(mine.tokens)
        try:
            self.hand.decode(mine, mine.ids, mine.tokens, (before, mine.committed))
        except WrongContent as error:
            raise Broken("BYTES", str(error)) from error
        return True

    def finish(self, job: Job, keep: bool) -> None:
        mine = self.hand.jobs[job.id]
        if keep and mine.stage == "decoding":
            self.feed(Finished(job.id, self.hand.key(mine, mine.committed), mine.committed))
            del self.hand.jobs[job.id]
        else:
            self._drop(job.id)

    def retract(self, job: Job) -> None:
        self._drop(job.id)

    def abort(self, job: Job) -> None:
        self._drop(job.id)

    def evict(self, pool: str, slots: int) -> int:
        tier, name = pool.split()
        at = Tier.HOST if tier == "host" else Tier.DEVICE
        if name not in self.names or not self.hand.core.view.pool(at).capacity:
            return 0
        before = self.hand.core.view.pool(at, self.names.index(name)).free
        self.feed(EvictWanted(at, name, slots))
        return self.hand.core.view.pool(at, self.names.index(name)).free - before

    def reset(self) -> bool:
        self.feed(Flushed())
        return not tuple(self.hand.core.view.nodes())

    def transfers(self) -> Sequence[Transfer]:
        began, self.began = self.began, []
        return began

    def answer(self, transfer: Transfer, fault: str) -> None:
        one = next(one for one in self.hand.pending if one.number == transfer.what)
        self.hand.pending[self.hand.pending.index(one)] = one = one._replace(fault=fault)
        try:
            self.hand.take(one)
        except WrongContent as error:
            raise Broken("BYTES", str(error)) from error
        self.feed_more()

    def feed_more(self) -> None:
        """Notes what an answer began."""
        for one in self.hand.pending:
            if one.number not in self.known and not isinstance(one.action, Prefill):
                self.known.add(one.number)
                kind = Load if isinstance(one.action, CoreLoad) else Backup
                self.began.append(kind(one.number))

    def pools(self) -> Sequence[PoolState]:
        found: Sequence[PoolState] = self.recorder.pure(pools_of, self.core)
        return found

    def laws(self) -> None:
        try:
            self.hand.at_rest()
        except WrongContent as error:
            raise Broken("BYTES", str(error)) from error

    def let_go(self) -> None:
        view = self.hand.core.view
        for tier in (Tier.DEVICE, Tier.HOST):
            for at, name in enumerate(self.names):
                if view.pool(tier, at).capacity:
                    self.feed(EvictWanted(tier, name, view.pool(tier, at).capacity))

    def _of(self, kind: type[Any], outcomes: Sequence[Outcome]) -> Any:
        found = [one for one in outcomes if isinstance(one, kind)]
        need(len(found) == 1, "CONTRACT", f"expected one {kind.__name__}, found {outcomes}")
        return found[0]


PEER = HicachePeer
