"""The shadow state of storage: whether it is attached, what it acknowledged, and what is looked up.

Lives here: what follows from events and outcomes alone. Who waits for a prefetch is for the
specification to say.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hicache.core import events
from hicache.core.actions import Abandoned, Fetch, Lookup, Outcome, Refused, Released, Store
from hicache.core.config import Config
from hicache.core.types import RequestId, TransferId

from .kinds import Kind
from .pages import PageShadow
from .tags import NO_TAGS, Tags, digests_of
from .transfers import TransferRecord


class Prefetch(NamedTuple):
    """A lookup or fetch in flight. first: the page where it begins. digests: of the pages that it
    covers. prompt: tags of the pages up to the last of these, of the request that began it.
    """

    first: int
    digests: tuple[bytes, ...]
    prompt: Tags


class StorageShadow:
    """What the checks know of storage."""

    def __init__(self, config: Config, kinds: Sequence[Kind], host: Sequence[PageShadow]) -> None:
        self.host = host
        self.kinds = {kind.name: kind.at for kind in kinds}
        self.attached = self.seen = config.storage  # seen: whether it ever was attached
        self.steady = config.storage  # whether it stayed attached and no store failed
        self.abandoned: set[TransferId] = set()  # transfers that were reported as abandoned
        self.outdated: set[TransferId] = set()  # in flight when storage was attached again
        self.prefetches: dict[TransferId, Prefetch] = {}
        self.digests: dict[RequestId, tuple[bytes, ...]] = {}  # of the prompts of waiting requests
        self.written: dict[tuple[int, bytes], int] = {}  # tag by component and digest, as stored
        self.acknowledged: set[tuple[int, bytes]] = set()  # component and digest, since the attach
        self._open: set[TransferId] = set()  # lookups, fetches and stores in flight
        self._prompts: dict[RequestId, Tags] = {}

    def arrive(self, event: events.Arrived, tags: Tags) -> None:
        """Files a request that has arrived. tags: of the pages that it may reuse."""
        if self.attached:
            self._prompts[event.request] = tags
            self.digests[event.request] = digests_of(event.key.first(event.match_pages))

    def hear(
        self, event: events.Event, outcomes: Sequence[Outcome], transfer: TransferRecord | None
    ) -> None:
        """Files one operation. transfer record: what the event answers."""
        self._life(event, outcomes)
        if not self.seen:
            return
        ended = None
        if transfer is not None:
            ended = self.prefetches.pop(transfer.id, None)
            self._answered(event, transfer)
        for item in outcomes:
            if isinstance(item, Lookup):
                first, digests = item.first_page, item.digests
                prompt = self._prompts.get(item.request, NO_TAGS)[: first + len(digests)]
                self.prefetches[item.transfer] = Prefetch(first, digests, prompt)
            elif isinstance(item, Fetch) and ended is not None:
                covered, prompt = ended.digests[: item.pages], ended.prompt
                prompt = prompt[: ended.first + item.pages]
                self.prefetches[item.transfer] = Prefetch(ended.first, covered, prompt)
            elif isinstance(item, Abandoned):
                self.abandoned.add(item.transfer)
            elif isinstance(item, Released) and type(event) is not events.Retracted:
                self.digests.pop(item.request, None)
                self._prompts.pop(item.request, None)
            if isinstance(item, Lookup | Fetch | Store):
                self._open.add(item.transfer)

    def _life(self, event: events.Event, outcomes: Sequence[Outcome]) -> None:
        """Files what begins and ends the life of a storage, and of what is known of it."""
        kind = type(event)
        if kind not in (events.StorageAttached, events.DetachWanted, events.Flushed):
            return
        refused = any(type(item) is Refused for item in outcomes)
        self.steady &= kind is events.Flushed
        if kind is events.StorageAttached and not refused:
            self.attached = self.seen = True
            self.outdated |= self._open
            self.acknowledged.clear()
        elif kind is events.DetachWanted:
            self.attached = False
            self.acknowledged.clear()
        elif kind is events.Flushed and event.storage and not refused:  # type: ignore[union-attr]
            self.acknowledged.clear()

    def _answered(self, event: events.Event, transfer: TransferRecord) -> None:
        action = transfer.action
        current = self.attached and transfer.id not in self.outdated
        if type(event) is events.StoreDone and type(action) is Store and current:
            left = event.pages if transfer.id not in self.abandoned else 0
            for piece in action.pieces:
                at = self.kinds.get(piece.component, 0)
                self.acknowledged.update((at, digest) for digest in piece.digests[: max(0, left)])
                left -= len(piece.pages)
            self.steady &= left >= 0
        elif type(event) is events.FetchDone and type(action) is Fetch and current:
            for piece in action.pieces:
                at = self.kinds.get(piece.component, 0)
                count = max(0, action.first_page + event.pages - piece.first_page)
                self.acknowledged.update((at, digest) for digest in piece.digests[:count])
        for transfers in (self.abandoned, self.outdated, self._open):
            transfers.discard(transfer.id)

    def looked_up(self, event: events.Event) -> Prefetch | None:
        """The lookup that an event answers."""
        return self.prefetches.get(event.transfer) if type(event) is events.LookupDone else None

    def tokens(self, page_size: int) -> int:
        """Tokens that are looked up or fetched."""
        return sum(len(prefetch.digests) for prefetch in self.prefetches.values()) * page_size

    def write(self, transfers: Sequence[TransferRecord]) -> None:
        """Files what storage will have under the digests of stores: the content of each page."""
        for transfer in transfers:
            if type(transfer.action) is not Store:
                continue
            for piece in transfer.action.pieces:
                at = self.kinds.get(piece.component, 0)
                contents = self.host[at].content[piece.pages].tolist()
                for digest, tag in zip(piece.digests, contents, strict=False):
                    self.written[at, digest] = tag
