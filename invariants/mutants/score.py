"""The score of the checks on generic mutants: which ones are noticed, and which survive.

Lives here: the hunt for one mutant, the reviewed list of equivalent mutants, and the sums. Does not
use clocks or processes (the command line decides when a hunt ends) and does not print.

    by a check          a check, the content, an assert of the core, the end of a sequence, or the
                        limit of steps reports a failure
    by specification    no check fails, but the core answers otherwise than the specification
    equivalent          on the reviewed list
    alive               the rest. `reached`: some tape runs its line; `differs`: some tape has other
                        page numbers or counts
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hicache.core.errors import CallerError

from ..fuzz.against import SPEC_KIND
from ..fuzz.draws import Draws
from .contracts import broken
from .ground import Ground, play
from .mutate import Mutant, applied
from .steps import Endless, Steps, limited

ENDLESS = "ENDLESS"
_MOST = 2_000_000  # steps of all properties together
EQUIVALENT = Path(__file__).with_name("equivalent.txt")

Guard = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Hunt:
    """The result of a hunt.

    code, kind: of the failure, 0 and "" if the mutant survived. operations: number of events, over
    all sequences. seed: of the failing sequence.
    """

    name: str
    code: int
    kind: str
    operations: int
    sequences: int
    seed: int = -1
    differs: bool = False
    reached: bool = True

    @property
    def killed(self) -> bool:
        return self.code != 0


@dataclass(frozen=True)
class Count:
    """One row of the score. alive: neither noticed nor on the list."""

    mutants: int = 0
    by_checks: int = 0
    by_specification: int = 0
    equivalent: int = 0
    alive: int = 0

    @property
    def rate(self) -> float:
        """Share of non-equivalent mutants that a check or the specification noticed."""
        counted = self.mutants - self.equivalent
        return (self.by_checks + self.by_specification) / counted if counted else 1.0

    @property
    def by_checks_alone(self) -> float:
        """Share of non-equivalent mutants that a check noticed."""
        counted = self.mutants - self.equivalent
        return self.by_checks / counted if counted else 1.0


@dataclass(frozen=True)
class Score:
    """The score. stale: names on the list of equivalent mutants that were noticed or do not
    exist.
    """

    total: Count
    by_module: dict[str, Count]
    by_kind: tuple[tuple[str, int], ...]
    survivors: tuple[str, ...]
    equivalent: tuple[str, ...]
    stale: tuple[str, ...] = field(default=())


@contextmanager
def unguarded() -> Iterator[None]:
    """A guard without a limit of time."""
    yield


def hunt(
    mutant: Mutant,
    grounds: Sequence[Ground],
    more: Callable[[], bool] = lambda: True,
    guard: Guard = unguarded,
    skip: int = 0,
) -> Hunt:
    """Plays the tapes that run the mutant's lines, shortest first, until a failure occurs or `more`
    returns False. skip: number of tapes that were played before.
    """
    events = count = 0
    differs = False
    reaching = [one for one in grounds if one.runs(mutant.module, mutant.lines)]
    for ground in sorted(reaching, key=lambda one: one.events)[skip:]:
        seed = ground.tape.seed
        try:
            with guard(), applied(mutant, counted=True):
                outcome, digest, _ = play(ground.tape, ground.most)
        except Endless:
            return Hunt(mutant.name, 14, ENDLESS, events, count + 1, seed, True)
        except Exception as error:  # before the first entry, which play does not judge
            return Hunt(mutant.name, 10, type(error).__name__, events, count + 1, seed, True)
        events += outcome.hand.events
        count += 1
        failure = outcome.failure
        if failure is not None:
            return Hunt(mutant.name, failure.code, failure.kind, events, count, seed, True)
        differs = differs or digest != ground.digest
        if not more():
            break
    wrong = "" if skip else _broken(mutant, guard)
    if wrong:
        return Hunt(mutant.name, 11, wrong, events, count, -1, True)
    return Hunt(mutant.name, 0, "", events, count, -1, differs, bool(reaching))


def _broken(mutant: Mutant, guard: Guard) -> str:
    """Returns the property of contracts that the mutant breaks, or ""."""
    try:
        with guard(), limited(Steps(_MOST)), applied(mutant, counted=True):
            return broken(mutant.module)
    except Exception as error:
        return type(error).__name__
    except Endless:
        return ENDLESS


def sample(mutants: Sequence[Mutant], count: int, seed: int = 0) -> list[Mutant]:
    """Returns `count` mutants, drawn by name, in their order; all if count is 0."""
    if not count or count >= len(mutants):
        return list(mutants)
    drawn = sorted(mutants, key=lambda one: Draws(seed, "mutant", one.name).below(1 << 32))
    kept = {one.name for one in drawn[:count]}
    return [one for one in mutants if one.name in kept]


def equivalent(text: str | None = None, file: str = EQUIVALENT.name) -> dict[str, str]:
    """The reviewed equivalent mutants: names and reasons. Raises CallerError for a line without a
    reason. text: of the list in another file.
    """
    found: dict[str, str] = {}
    lines = (EQUIVALENT.read_text(encoding="utf-8") if text is None else text).splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("# "):
            continue
        name, _, reason = line.partition("  ")
        if not reason.strip():
            raise CallerError(
                f"{file}:{number}: expected a name, two spaces and a reason, "
                f"found {line!r}; say why nothing can tell it from the original"
            )
        found[name] = reason.strip()
    return found


def score(
    hunts: Iterable[Hunt],
    reviewed: dict[str, str] | None = None,
    known: Sequence[str] | None = None,
) -> Score:
    """Sums the results of hunts. reviewed: the list of equivalent mutants; default: the file.
    known: names of all mutants, to find stale names on the list.
    """
    listed = equivalent() if reviewed is None else reviewed
    done = list(hunts)
    rows: dict[str, Counter[str]] = {}
    names: dict[str, list[str]] = {"equivalent": [], "alive": []}
    for one in done:
        verdict = _verdict(one, listed)
        rows.setdefault(one.name.partition(":")[0], Counter())[verdict] += 1
        names.setdefault(verdict, []).append(one.name)
    total = sum(rows.values(), Counter())
    kinds = Counter(one.kind for one in done if one.killed)
    seen = [one.name for one in done if one.killed and one.name in listed]
    gone = [name for name in listed if known is not None and name not in known]
    return Score(
        _count(total),
        {module: _count(row) for module, row in sorted(rows.items())},
        tuple(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        tuple(names["alive"]),
        tuple(names["equivalent"]),
        (*seen, *gone),
    )


def _verdict(one: Hunt, listed: dict[str, str]) -> str:
    if one.killed:
        return "by_specification" if one.kind.startswith(SPEC_KIND) else "by_checks"
    return "equivalent" if one.name in listed else "alive"


def _count(row: Counter[str]) -> Count:
    return Count(sum(row.values()), **dict(row))
