"""The score of the harness over generic mutants: which ones something notices, and who lives.

Lives here: the hunt for one mutant, the reviewed list of equivalent survivors, the sum. Must not
live here: clocks and processes (the command line says when a hunt has had enough), printing.

A survivor `differs` if some sequence went another way than without the mutant: then what it does
can be seen, and nothing judges it. One that never differs is equivalent, or out of reach. A seed
that fails without the mutant, too, proves nothing about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from hicache.core.errors import CallerError
from hicache.core.types import Tier

from .draws import Draws
from .generate import weights_of
from .mutate import Mutant, applied
from .ops.base import load
from .play import Outcome, generate
from .swarm import draw_swarm

ENDLESS = "ENDLESS"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
KEPT = 64
_OPS = load()
_WEIGHTS = weights_of(_OPS)

Guard = Callable[[], AbstractContextManager[None]]


class Endless(BaseException):
    """Raised into a sequence that does not come to an end; no `except Exception` may hold it."""


@dataclass(frozen=True)
class Hunt:
    """code, kind: of the failure that ended it, 0 and "" where the mutant survived. operations:
    events fed to cores, over all sequences. seed: of the sequence that failed."""

    name: str
    code: int
    kind: str
    operations: int
    sequences: int
    seed: int = -1
    differs: bool = False

    @property
    def killed(self) -> bool:
        return self.code != 0


@dataclass(frozen=True)
class Score:
    """survivors: killed by nothing and on no list. stale: listed as equivalent, and killed."""

    mutants: int
    killed: int
    by_kind: tuple[tuple[str, int], ...]
    survivors: tuple[str, ...]
    equivalent: tuple[str, ...]
    stale: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Killed, of those that are not equivalent."""
        counted = self.mutants - len(self.equivalent)
        return self.killed / counted if counted else 1.0


@contextmanager
def unguarded() -> Iterator[None]:
    """A guard that lets a sequence take as long as it likes."""
    yield


def hunt(
    mutant: Mutant,
    seeds: Iterable[int],
    operations: int = 120,
    more: Callable[[], bool] = lambda: True,
    guard: Guard = unguarded,
) -> Hunt:
    """Play a sequence per seed with the mutant in, until one fails or `more` says no."""
    events = count = 0
    differs = False
    for seed in seeds:
        plain = _plain(seed, operations) if not differs and seed < KEPT else ""
        try:
            with guard(), applied(mutant):
                outcome = _play(seed, operations)
        except Endless:
            return Hunt(mutant.name, 14, ENDLESS, events, count + 1, seed, True)
        except Exception as error:  # before the first entry, thus outside of what play judges
            return Hunt(mutant.name, 10, type(error).__name__, events, count + 1, seed, True)
        events += outcome.hand.events
        count += 1
        failure = outcome.failure
        if failure is not None and not _fails_plainly(seed, operations):
            return Hunt(mutant.name, failure.code, failure.kind, events, count, seed, True)
        differs = differs or (bool(plain) and digest(outcome) != plain)
        if not more():
            break
    return Hunt(mutant.name, 0, "", events, count, -1, differs)


def sample(mutants: Sequence[Mutant], count: int, seed: int = 0) -> list[Mutant]:
    """So many of them, drawn by name, in their order; all of them where count is 0."""
    if not count or count >= len(mutants):
        return list(mutants)
    drawn = sorted(mutants, key=lambda one: Draws(seed, "mutant", one.name).below(1 << 32))
    kept = {one.name for one in drawn[:count]}
    return [one for one in mutants if one.name in kept]


def equivalent(text: str | None = None) -> dict[str, str]:
    """The reviewed survivors: names and reasons. Raises CallerError for a line without reason."""
    found: dict[str, str] = {}
    lines = (EQUIVALENT.read_text(encoding="utf-8") if text is None else text).splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition("  ")
        if not reason.strip():
            raise CallerError(
                f"{EQUIVALENT.name}:{number}: expected a name, two spaces and a reason, "
                f"found {line!r}; say why nothing can tell it from the original"
            )
        found[name] = reason.strip()
    return found


def score(hunts: Iterable[Hunt], reviewed: dict[str, str] | None = None) -> Score:
    """What a number of hunts comes to. reviewed: the list of equivalent mutants unless given."""
    listed = equivalent() if reviewed is None else reviewed
    done = list(hunts)
    kinds = Counter(one.kind for one in done if one.killed)
    alive = [one.name for one in done if not one.killed]
    return Score(
        len(done),
        len(done) - len(alive),
        tuple(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        tuple(name for name in alive if name not in listed),
        tuple(name for name in alive if name in listed),
        tuple(one.name for one in done if one.killed and one.name in listed),
    )


def digest(outcome: Outcome) -> str:
    """What two sequences that went the same way share: entries, counts, what is left of pools."""
    hand = outcome.hand
    view = hand.core.view
    pools = [
        (tuple(view.pool(tier, at).counts), view.pool(tier, at).evictable)
        for tier in (Tier.DEVICE, Tier.HOST)
        for at in range(len(view.components))
    ]
    said = (outcome.tape.entries, sorted(hand.counts.items()), hand.events, hand.now, pools)
    return blake2b(repr((said, view.tick)).encode(), digest_size=16).hexdigest()


def _play(seed: int, operations: int) -> Outcome:
    return generate(draw_swarm(seed, _WEIGHTS), _OPS, seed, operations)


@lru_cache(maxsize=4 * KEPT)
def _plain(seed: int, operations: int) -> str:
    """How the sequence goes without a mutant. Never called while one is in."""
    return digest(_play(seed, operations))


@lru_cache(maxsize=1 << 16)
def _fails_plainly(seed: int, operations: int) -> bool:
    return _play(seed, operations).failure is not None
