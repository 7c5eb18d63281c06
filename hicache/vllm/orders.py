"""What passes between the two halves of the connector: orders to the workers, and their replies.

Keeps the core's actions for the next message, and vLLM's references to the blocks that they copy.
A reply counts when every rank has given it, and is the largest number that is right on all of them
(`ranks`); replies of loads and backups are in order on every rank, and so they are here.
Decides nothing, see `deciding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from hicache.core.actions import Backup, HostTransfer, Load, StorageAction
from hicache.core.events import Reply
from hicache.core.types import TransferId
from hicache.runtime.driver import REPLY_TO


class Adapter(NamedTuple):
    """One that pages belong to. number: by which vLLM knows it. digest: of its files."""

    number: int
    digest: str
    path: str


@dataclass(slots=True)
class Message:
    """From the scheduler to the workers, once a step.

    loads, backups: with slots and blocks of vLLM in place of the core's components and device
    pages. waiting: by transfer of a load, vLLM's name of the request that waits for it. failed:
    requests whose load cannot begin. abandoned: actions for which nobody waits any more.
    adapters: what the pages of loads and backups belong to.
    """

    loads: list[Load] = field(default_factory=list)
    backups: list[Backup] = field(default_factory=list)
    storage: list[StorageAction] = field(default_factory=list)
    waiting: dict[TransferId, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    abandoned: list[TransferId] = field(default_factory=list)
    adapters: set[Adapter] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Answer:
    """From the workers, once a step. done: by transfer, the numbers that are right for its
    reply on one rank, as a set (`ranks`). outages: how often the store has come back, at least
    on one rank. changed: the weights of a rank. failed: requests whose load has failed."""

    done: tuple[tuple[TransferId, int], ...] = ()
    outages: int = 0
    changed: bool = False
    failed: frozenset[str] = frozenset()

    def with_other(self, other: Answer) -> Answer:
        """Those of two ranks."""
        return Answer(
            self.done + other.done,
            max(self.outages, other.outages),
            self.changed or other.changed,
            self.failed | other.failed,
        )


class _Sent(NamedTuple):
    kind: type
    blocks: Sequence[Any]
    offers: list[int]


class Orders:
    """The executor of the core. ranks: how many answer each order."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._pool: Any = None
        self._sent: dict[TransferId, _Sent] = {}
        self._unsent = Message()
        self._replies: list[Reply] = []

    def use(self, pool: Any) -> None:
        """vLLM's pool of blocks (`BlockPool`), which counts references to them."""
        self._pool = pool

    @property
    def busy(self) -> bool:
        """Whether something was or is to be sent whose reply is not there yet."""
        return bool(self._sent or self._unsent.failed or self._replies)

    @property
    def held_blocks(self) -> int:
        """References to blocks of vLLM."""
        return sum(len(sent.blocks) for sent in self._sent.values())

    def submit(self, action: HostTransfer | StorageAction) -> None:
        """Loads and backups wait until `send` says which blocks they are for."""
        if not isinstance(action, Load | Backup):
            self._unsent.storage.append(action)
            self._sent[action.transfer] = _Sent(type(action), (), [])

    def send(
        self,
        action: HostTransfer,
        blocks: Sequence[Any],
        adapters: Iterable[Adapter | None],
        request: str = "",
    ) -> None:
        """A load or backup with slots and blocks. blocks: those that it uses. adapters: that its
        pages belong to. request: vLLM's name of the one that waits for it."""
        self._pool.touch(blocks)
        self._sent[action.transfer] = _Sent(type(action), blocks, [])
        self._unsent.adapters.update(item for item in adapters if item is not None)
        if isinstance(action, Backup):
            self._unsent.backups.append(action)
        else:
            self._unsent.loads.append(action)
            self._unsent.waiting[action.transfer] = request

    def refuse(self, action: HostTransfer) -> None:
        """A load or backup that cannot be done has failed."""
        self._replies.append(REPLY_TO[type(action)](action.transfer, 0))

    def fail(self, request: str) -> None:
        """The load for which a request waits cannot begin."""
        self._unsent.failed.add(request)

    def abandon(self, transfer: TransferId) -> None:
        self._unsent.abandoned.append(transfer)

    def start(self) -> None:
        """Does nothing: the message goes with the next step."""

    def poll(self) -> list[Reply]:
        """Replies that every rank has given."""
        replies, self._replies = self._replies, []
        return replies

    def message(self) -> Message:
        """Everything that was not sent yet."""
        message, self._unsent = self._unsent, Message()
        return message

    def answered(self, done: Sequence[tuple[TransferId, int]]) -> None:
        """Replies of workers. Those that nobody asked for are ignored."""
        ended = []
        for transfer, offer in done:
            sent = self._sent.get(transfer)
            if sent is not None:
                sent.offers.append(offer)
                if len(sent.offers) == self._ranks:
                    ended.append(transfer)
        for transfer in sorted(ended):
            sent = self._sent.pop(transfer)
            if sent.blocks:
                self._pool.free_blocks(sent.blocks)
            right = reduce(and_, sent.offers)
            self._replies.append(REPLY_TO[sent.kind](transfer, right.bit_length()))
