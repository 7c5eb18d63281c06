"""What a target is: somebody else's cache, behind the verbs that every sequence is played with.

Lives here: the protocol, and the records that the laws read. A target calls its engine's own code
and follows the contents of every slot; it decides nothing and judges little: what must hold in each
state is in laws. Two kinds of engines are known. Of a *cache*, the player is the scheduler: it
admits requests, computes chunks and finishes them. A *server* has a scheduler of its own: the
player gives it requests and lets it take steps.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from invariants.fuzz.draws import Draws
from invariants.fuzz.schedules import Job
from invariants.fuzz.script import Recorder

Slots = NDArray[np.int64]
Config = dict[str, Any]  # JSON values

UNWRITTEN, FREED, MOVING = -1, -2, -3  # contents that no prefix has


class Broken(AssertionError):
    """A law is broken. law: its name. text: what was expected, and what was found. kind: equal
    for failures of the same sort, if the law's name does not say enough."""

    def __init__(self, law: str, text: str, kind: str = "") -> None:
        super().__init__(f"{law}: {text}")
        self.law = law
        self.text = text
        self.kind = f"{law} {kind}".rstrip()


class Unfit(Exception):
    """It cannot be opened with this configuration, or the engine refuses that by its contract. Not
    a failure."""


def need(holds: Any, law: str, text: str = "", kind: str = "") -> None:
    """Raises Broken unless the law holds."""
    if not holds:
        raise Broken(law, text, kind)


class Can(NamedTuple):
    """What it can do. serves: it is a server, with a scheduler of its own. host: it has a host tier
    or a store, so that there are transfers. fails: transfers may fail. namespaces: keys may
    be salted. evicts: names of the pools that it can be asked to shrink. retracts: running requests
    can be retracted. aborts: requests can be ended at any stage. resets: the cache can be emptied.
    """

    serves: bool = False
    host: bool = False
    fails: bool = False
    namespaces: bool = False
    evicts: tuple[str, ...] = ()
    retracts: bool = True
    aborts: bool = True
    resets: bool = True


class Hit(NamedTuple):
    """An answer to a look-up. device: tokens that need not be computed. host: tokens behind these
    that can be loaded."""

    device: int
    host: int = 0


class Transfer(NamedTuple):
    """A copy that the engine began, and that its worker answers later. kind: "Load" (host to
    device), "Backup", "Lookup" (what a store has), "Fetch" (store to host) or "Store". what: the
    target's own record of it. fails: whether it may fail, where the target says that some may."""

    kind: str
    what: Any
    fails: bool = True


class Holding(NamedTuple):
    """Slots and who holds them. owner: "cache", "request 3", "load 7" ... expected: the content
    that each slot must have, or None where it is not known yet."""

    owner: str
    slots: Slots
    expected: Slots | None = None


class PoolState(NamedTuple):
    """One pool. slots: its usable slots. page: slots of a page, which is
    taken and freed whole. free: free pages, as the engine counts them. contents: by slot. shares:
    whether one slot may have several holders. counted: slots that the engine says are cached, or
    -1. protected: those of them that it says are locked, or -1."""

    name: str
    page: int
    slots: int
    free: int
    holdings: Sequence[Holding]
    contents: Slots | None = None
    shares: bool = False
    counted: int = -1
    protected: int = -1


class Target:
    """One opened cache. A target overrides what its `can` promises.

    TAKES: the configuration keys that `--config KEY=VALUE` may fix, with the values that are known
    (an empty tuple: any number).
    """

    can: ClassVar[Can] = Can()
    TAKES: ClassVar[dict[str, tuple[Any, ...]]] = {}
    OPERATIONS: ClassVar[dict[str, Any]] = {}  # its own, beside those of its kind: see ops

    def __init__(self, config: Config, recorder: Recorder) -> None:
        """Opens the engine. Raises Unfit."""
        self.config = config
        self.recorder = recorder
        self.counts: Counter[str] = Counter()

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        """Draws a configuration that has the fixed values. The keys "page" (tokens of a page) and
        "pages" (device pages, a guide for the lengths of prompts) are always there."""
        raise NotImplementedError

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        """Configurations that are one step simpler, the simplest first."""
        return ()

    # -- a cache

    def match(self, job: Job) -> Hit:
        """Looks a prompt up, and judges the answer. Changes nothing that a user sees."""
        raise NotImplementedError

    def admit(self, job: Job) -> Hit | None:
        """Takes what a request's prompt needs, and sets `job.computed` to the tokens that are in
        place. Returns the hit that it uses, or None: refused for lack of slots."""
        raise NotImplementedError

    def prefill(self, job: Job, until: int) -> bool:
        """Computes the prompt from `job.computed` to `until` and publishes what is whole. False:
        refused for lack of slots."""
        raise NotImplementedError

    def decode(self, job: Job, tokens: Sequence[int]) -> bool:
        """Generates these tokens (they are not yet in `job.tokens`)."""
        raise NotImplementedError

    def finish(self, job: Job, keep: bool) -> None:
        """Ends a request. keep: what it computed goes into the cache."""
        raise NotImplementedError

    def retract(self, job: Job) -> None:
        """Retracts a running request, which waits again."""
        raise NotImplementedError

    def evict(self, pool: str, slots: int) -> int:
        """Evicts, and returns the slots that the engine says it freed."""
        raise NotImplementedError

    def cool(self) -> None:
        """Evicts from every device pool as much as can go, so that what has a copy elsewhere is
        only there."""
        for pool in self.can.evicts:
            if "host" not in pool:
                self.evict(pool, 1 << 20)

    # -- a server

    def arrive(self, job: Job) -> None:
        """A server gets a request. A cache need not know of it."""

    def leave(self, job: Job) -> None:
        """A waiting request leaves a cache that knows of it."""

    def step(self) -> Sequence[int]:
        """A server takes one step of its scheduler; the worker computes it. Returns the ids of the
        requests that ended."""
        raise NotImplementedError

    def judge_ends(self) -> None:
        """Raises Broken for a request of a server that should have ended by now; a script of the
        engine's calls then ends with it."""

    # -- both

    def abort(self, job: Job) -> None:
        """Ends a request at any stage."""
        raise NotImplementedError

    def fits(self, job: Job) -> bool:
        """Whether a request could run if it were alone, and so must."""
        return len(job.tokens) <= int(self.config["page"]) * int(self.config["pages"])

    def reset(self) -> bool:
        """Empties the cache. False: refused, because something is running."""
        raise NotImplementedError

    def transfers(self) -> Sequence[Transfer]:
        """The transfers that began since the last call."""
        return ()

    def answer(self, transfer: Transfer, fault: str) -> None:
        """The worker ends a transfer, with a fault ("fail") or without ("")."""
        raise NotImplementedError

    def poll(self) -> None:
        """Lets the engine take the answers."""

    def self_check(self) -> None:
        """The engine's own check of its state, if it has one. Raises AssertionError."""

    def pools(self) -> Sequence[PoolState]:
        """The state that the laws judge."""
        raise NotImplementedError

    def free(self) -> dict[str, int]:
        """The free slots of each pool."""
        return {pool.name: pool.free * pool.page for pool in self.pools()}

    def laws(self) -> None:
        """Laws of this engine alone. Raises Broken."""

    def release_all(self) -> None:
        """Evicts everything that nothing holds, on every tier."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends threads and removes files."""


def chain(tokens: Sequence[int], namespace: str = "") -> Slots:
    """The content of each position: a digest of the whole prefix up to it, always positive."""
    digest = blake2b(namespace.encode() + b"\0", digest_size=7)
    result = np.empty(len(tokens), np.int64)
    for at, token in enumerate(tokens):
        digest.update(token.to_bytes(4, "little"))
        result[at] = int.from_bytes(digest.digest(), "little")
    return result
