"""The driver passes events to a core, and outcomes to observers and an executor.

It is the only caller of `Core.handle`, so it calls the observers, before the core handles an event
and after it has answered. Here, too: a driver whose core is checked, and executors that have no
device of their own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from hicache.core.actions import (
    Abandoned,
    Backup,
    Delete,
    Fetch,
    HostTransfer,
    Load,
    Lookup,
    Outcome,
    Prefill,
    StorageAction,
    Store,
)
from hicache.core.core import Core
from hicache.core.errors import CallerError, Detached
from hicache.core.events import (
    BackupDone,
    DeleteDone,
    Event,
    FetchDone,
    LoadDone,
    LookupDone,
    PrefillDone,
    Reply,
    StoreDone,
)
from hicache.core.node import TransferKind
from hicache.core.types import TransferId
from hicache.core.view import CoreView

# The reply to each kind of action, from its transfer and the number of pages, or 1 if it was done.
REPLY_TO: dict[type, Callable[[TransferId, int], Any]] = {
    Backup: lambda transfer, done: BackupDone(transfer, bool(done)),
    Load: lambda transfer, done: LoadDone(transfer, bool(done)),
    Prefill: lambda transfer, done: PrefillDone(transfer, bool(done)),
    Lookup: LookupDone,
    Fetch: FetchDone,
    Store: StoreDone,
    Delete: lambda transfer, done: DeleteDone(transfer, bool(done)),
}
_SUBMITTED = frozenset(REPLY_TO) - {Prefill}

T = TypeVar("T")


def first_of(kind: type[T], outcomes: Sequence[Outcome]) -> T | None:
    """The first outcome of a kind, if there is one."""
    return next((outcome for outcome in outcomes if isinstance(outcome, kind)), None)


class Observer(Protocol):
    """Sees every event and every outcome. It stops the run by raising an exception."""

    def on_event(self, event: Event, view: CoreView) -> None:
        """Called before the core handles the event."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        """Called after the core has handled the event, before any action is carried out."""


class Executor(Protocol):
    """Carries out loads, backups and actions for storage. It answers each submitted action with
    exactly one reply: loads and backups in order, actions for storage in any order."""

    def submit(self, action: HostTransfer | StorageAction) -> None:
        """Queue a load or backup until `start`. An action for storage may begin at once."""

    def abandon(self, transfer: TransferId) -> None:
        """Nobody waits for this action for storage any more: answer it as soon as possible, with
        what has been done. Without effect if it was answered."""

    def start(self) -> None:
        """Begin what is queued, merged into one batch per direction; backups may wait."""

    def poll(self) -> list[Reply]:
        """Replies of the actions that ended since the last call, oldest first per direction."""


class Driver:
    """Feeds events to one core and passes its actions to one executor. The caller runs the
    prefills."""

    __slots__ = ("check", "core", "detached", "executor", "observers")

    def __init__(self, core: Core, executor: Executor, observers: Sequence[Observer] = ()) -> None:
        self.core = core
        self.executor = executor
        self.observers = tuple(observers)
        self.check: Any = None  # of a `CheckedDriver`
        self.detached = False

    def feed(self, event: Event) -> list[Outcome]:
        """Pass one event to the core and submit its actions. Returns all outcomes."""
        view = self.core.view
        for observer in self.observers:
            observer.on_event(event, view)
        outcomes = self.core.handle(event)
        for observer in self.observers:
            observer.on_outcomes(event, outcomes, view)
        for outcome in outcomes:
            kind = type(outcome)
            if kind in _SUBMITTED:
                self.executor.submit(outcome)  # type: ignore[arg-type]
            elif kind is Abandoned:
                self.executor.abandon(outcome.transfer)  # type: ignore[union-attr]
        return outcomes

    def poll(self) -> list[Outcome]:
        """Feed the core every reply that is ready. Returns its outcomes."""
        return [outcome for reply in self.executor.poll() for outcome in self.feed(reply)]

    def settle(self, pause: Callable[[], None] | None = None) -> list[Outcome]:
        """Start everything that is queued and feed the core each reply, until no action is left,
        also none that a reply began. Returns the outcomes. Prefills are not waited for.

        pause: called whenever nothing has ended yet, to let time pass; to bound the wait, it
        raises. A later call goes on where this one ended."""
        outcomes: list[Outcome] = []
        transfers = self.core.view.transfers
        while any(transfer.kind is not TransferKind.PREFILL for transfer in transfers.values()):
            self.executor.start()
            replies = self.executor.poll()
            for reply in replies:
                outcomes += self.feed(reply)
            if not replies and pause is not None:
                pause()
        return outcomes


class CheckedDriver(Driver):
    """Raises Detached at an event at which a check fails, or the core, and at each later one."""

    def feed(self, event: Event) -> list[Outcome]:
        if self.detached:
            raise Detached("the cache is not used any more, since a check has failed: see the log")
        try:
            return super().feed(event)
        except CallerError:
            raise
        except Exception as failure:
            self.detached = True
            self.check.report(failure)
            raise Detached(f"a check has failed: {failure}") from failure


class CheckOptions(NamedTuple):
    """How a core is checked: "sampled", or empty for not at all. folder: for files of events; empty
    for that of the system. now_s: seconds of a clock that never goes back."""

    how: str
    folder: str
    now_s: Callable[[], float]
    notice: Callable[[str], object]


def driver_of(
    core: Core, executor: Executor, check: CheckOptions, observers: Sequence[Observer] = ()
) -> Driver:
    """A driver whose core is checked. Raises CallerError for a check that cannot be."""
    if not check.how:
        return Driver(core, executor, observers)
    if check.how != "sampled":
        raise CallerError(f"check: expected sampled, found {check.how!r:.40}")
    if check.folder and not Path(check.folder).is_dir():
        raise CallerError(f"check_dir: expected a folder, found {check.folder!r:.80}")
    try:
        module: Any = import_module("invariants.production")
    except ImportError as error:
        raise CallerError(
            f"check: expected the package invariants, found: {error}; install all of hicache"
        ) from None
    production = module.Production(core.view, core.validate, *check[1:])
    driver = CheckedDriver(core, executor, (*observers, production))
    driver.check = production
    return driver


def without_storage(action: object, executor: object) -> CallerError:
    """The error of an executor that carries out loads and backups only, for any other action."""
    return CallerError(
        f"executor: {type(executor).__name__} cannot carry out {type(action).__name__}; put a "
        "TieredExecutor around it"
    )


class ImmediateExecutor:
    """Without a device or a clock: every host copy ends as soon as it is started. It is for replays
    that count hits and for measuring the core alone; it has no storage."""

    __slots__ = ("_ended", "_queued")

    def __init__(self) -> None:
        self._queued: deque[HostTransfer] = deque()
        self._ended: deque[HostTransfer] = deque()

    def submit(self, action: HostTransfer | StorageAction) -> None:
        if type(action) is not Load and type(action) is not Backup:
            raise without_storage(action, self)
        self._queued.append(action)

    def abandon(self, transfer: TransferId) -> None:
        """Does nothing: nobody abandons a load or backup."""

    def start(self) -> None:
        self._ended += self._queued
        self._queued.clear()

    def poll(self) -> list[Reply]:
        if not self._ended:
            return []
        replies: list[Reply] = [
            REPLY_TO[type(action)](action.transfer, 1) for action in self._ended
        ]
        self._ended.clear()
        return replies


class TieredExecutor:
    """For three tiers: passes loads and backups to `transfers`, and actions for storage to
    `storage`, whose methods are those of an `Executor`."""

    def __init__(self, transfers: Executor, storage: Any) -> None:
        self.transfers = transfers
        self.storage = storage

    def submit(self, action: HostTransfer | StorageAction) -> None:
        if isinstance(action, Load | Backup):
            self.transfers.submit(action)
        else:
            self.storage.submit(action)

    def abandon(self, transfer: TransferId) -> None:
        self.storage.abandon(transfer)

    def start(self) -> None:
        self.transfers.start()
        self.storage.start()

    def poll(self) -> list[Reply]:
        return [*self.transfers.poll(), *self.storage.poll()]
