"""Hunting mutants of code beside the core with judges: properties and small runs that must hold.

Lives here: a judge, what it runs, and the hunt for one mutant. Does not contain judges (see
invariants/simulator and the command line) or define mutants (see mutate).

A judge is a function that returns nothing, and raises if what it knows does not hold. It kills a
mutant if it raises with it, or takes more steps than `Surveyed.most`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from .ground import noted_lines, numbers_of
from .mutate import Mutant, applied, modules
from .score import ENDLESS, Guard, Hunt, unguarded
from .steps import Endless, Steps, limited

JUDGED, CRASHED, STUCK = 11, 10, 14


@dataclass(frozen=True)
class Judge:
    """One property. holds: raises if it does not hold."""

    name: str
    holds: Callable[[], None]


@dataclass(frozen=True)
class Surveyed:
    """A judge on the unchanged code: the lines of the modules that it runs, and its steps."""

    judge: Judge
    lines: frozenset[int]
    steps: int

    @property
    def most(self) -> int:
        """Number of steps after which it counts as endless."""
        return 20 * self.steps + 10_000


def survey(judges: Iterable[Judge], places: tuple[str, ...]) -> Iterator[Surveyed]:
    """Yields each judge with what it runs. Raises what a judge raises on the unchanged code.

    The loops of the places must be counted (see `mutate.counted`).
    """
    for judge in judges:
        judge.holds()  # fills what is loaded and cached at the first use
        with noted_lines(modules(places)) as lines, limited(Steps()) as steps:
            judge.holds()
        yield Surveyed(judge, frozenset(lines), steps.count)


def hunt(
    mutant: Mutant,
    surveyed: Sequence[Surveyed],
    places: tuple[str, ...],
    more: Callable[[], bool] = lambda: True,
    guard: Guard = unguarded,
) -> Hunt:
    """Asks the judges that run the mutant's lines, the shortest first, until one of them is not
    satisfied or `more` returns False.
    """
    wanted = numbers_of(modules(places), mutant.module, mutant.lines)
    reaching = [one for one in surveyed if not one.lines.isdisjoint(wanted)]
    count = 0
    for one in sorted(reaching, key=lambda one: one.steps):
        count += 1
        try:
            with guard(), limited(Steps(one.most)), applied(mutant, counted=True):
                one.judge.holds()
        except Endless:
            return Hunt(mutant.name, STUCK, f"{one.judge.name} ({ENDLESS})", 0, count)
        except AssertionError:
            return Hunt(mutant.name, JUDGED, one.judge.name, 0, count)
        except Exception as error:
            kind = f"{one.judge.name} ({type(error).__name__})"
            return Hunt(mutant.name, CRASHED, kind, 0, count)
        if not more():
            break
    return Hunt(mutant.name, 0, "", 0, count, reached=bool(reaching))
