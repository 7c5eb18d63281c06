"""Plants mistakes under `hicache prove`: which of them logits see, and which only the checks.

Each mistake is played from the same seeds: without any check, until logits differ; with everything,
until anything fails; and, if logits were first, with the checks alone, where no pass is computed.
Every mistake has a process of its own, which begins with the models of the command. Does not define
mistakes (see invariants/planted and invariants/prove/definitions), or print (see planted_report).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from hicache.core.errors import CallerError
from invariants.against import AGAINST, SPEC
from invariants.fuzz import play
from invariants.fuzz.executors import ModelSettings, models
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base as operations
from invariants.fuzz.swarm import Swarm
from invariants.planted import _kill as kill
from invariants.planted import base as bugs
from invariants.planted.base import Bug
from invariants.prove import wrong
from invariants.watch import Level

from ..fuzzing.planting import is_definition, planted
from ..terminal import processes
from .work import OPERATIONS, FamilyWork

LOGITS = "LOGITS"  # what the names of their failures begin with
# The families that show a bug in the core: one or two for each set of components.
USUAL = ("llama", "gemma3", "gpt-oss", "qwen3-next", "falcon-h1", "deepseek-v4")
# Where a bug decides which pages a pass reads or writes, or what is in them.
PLACES = (
    "hicache/core/components/",
    "hicache/core/eviction.py",
    "hicache/core/insertion",
    "hicache/core/placement",
    "hicache/core/radix/boundaries",
    "hicache/core/radix/locks",
    "hicache/core/radix/matching",
    "hicache/core/requests/",
    "hicache/core/storage/fetched",
    "hicache/core/transfers",
    "hicache/core/types",
    "hicache/memory/",
    "hicache/runtime/controller",
    "hicache/runtime/lanes",
    "hicache/storage/",
)
BESIDE_FULL = {"swa", "mamba"}  # and where a bug shows only with windows or states
PER_FAMILY = 4  # times as many requests for each family of a definition: each has to show it
PER_SEQUENCE = 5  # requests: a bug that ends every sequence early plays no more than this allows


@dataclass(frozen=True)
class PlantedJob:
    """requests: how many have a pass, without checks and with them. families: empty for those that
    fit. faults: whether actions may fail beside those faults that a bug names."""

    name: str
    requests: int
    families: tuple[str, ...] = ()
    faults: bool = False


@dataclass(frozen=True)
class Seen:
    """A failure, and the passes that were compared before it, over all sequences. bounds: of the
    comparison that failed; 0 if no logits were compared."""

    code: int
    kind: str
    family: str
    seed: int
    passes: int
    bounds: float

    @property
    def by_logits(self) -> bool:
        return self.kind.startswith(LOGITS)


@dataclass(frozen=True)
class Found:
    """What became of one mistake.

    logits: without checks, where logits saw it; of a definition, once for each family. before: the
    first other failure on the way there. first: the first failure with everything on. checks: the
    first failure where no pass is computed, or that came before any of logits. passes: compared
    without checks, and with everything.
    """

    name: str
    title: str
    families: tuple[str, ...]
    logits: tuple[Seen, ...]
    before: Seen | None
    first: Seen | None
    checks: Seen | None
    passes: tuple[int, int]
    seconds: float

    @property
    def definition(self) -> bool:
        return is_definition(self.name)

    @property
    def seen_by(self) -> str:
        """Who sees it alone: "both", "logits", "checks" (with the core's own asserts), "nobody"."""
        if self.logits and self.checks:
            return "both"
        return "logits" if self.logits else "checks" if self.checks else "nobody"


def names() -> list[str]:
    """All wrong definitions, and the planted bugs of one core that concern what passes read."""
    return [*wrong.names(), *(name for name in bugs.names() if _fits(name))]


def _fits(name: str) -> bool:
    bug = bugs.load(name)
    if bug.ranks or bug.hashed:
        return False
    places = [str(line) for line in bugs.patched(name)]
    beside = BESIDE_FULL & set(bug.components)
    return bool(beside) or any(place.startswith(PLACES) for place in places)


def hunt(jobs: Sequence[PlantedJob], most: int) -> Iterator[Found]:
    """Plays every mistake, in processes that begin with the models that this one has built. Leaves
    out the definitions that none of the wanted families has; raises CallerError if none is left."""
    wanted = {job: _families(job) for job in jobs}
    left = [job for job in jobs if wanted[job]]
    if not left:
        raise CallerError(
            f"--family: expected one of {', '.join(_families(PlantedJob(jobs[0].name, 1)))}, which "
            f"{jobs[0].name} is about, found {', '.join(jobs[0].families)}"
        )
    for family in {family: None for job in left for family in wanted[job]}:
        _components(family)
    return processes.results(get_context("fork"), work, left, most)


def work(job: PlantedJob) -> Found:
    """Plays one mistake."""
    begun = time.process_time()
    families = _families(job)
    turns = [(one,) for one in families] if is_definition(job.name) else [families]
    longer = replace(job, requests=job.requests * PER_FAMILY) if is_definition(job.name) else job
    bare = [list(_played(longer, turn, "off", _by_logits)) for turn in turns]
    seen = [one.seen for played in bare for one in played if one.seen]
    first = list(_played(job, families, "every", bool))
    alone = first
    if first[-1].seen and first[-1].seen.by_logits:
        alone = list(_played(job, families, "every", bool, _silent))
    return Found(
        job.name,
        _mistake(job.name).title,
        families,
        tuple(one for one in seen if one.by_logits),
        next((one for one in seen if not one.by_logits), None),
        first[-1].seen,
        alone[-1].seen,
        (sum(played[-1].passes for played in bare), alone[-1].passes),
        time.process_time() - begun,
    )


@dataclass(frozen=True)
class _Sequence:
    """One sequence. passes: with those before it."""

    passes: int
    seen: Seen | None


def _by_logits(seen: Seen) -> bool:
    return seen.by_logits


def _silent(hand: Any) -> None:
    """No pass is computed."""
    hand.computes = False


def _played(
    job: PlantedJob,
    families: Sequence[str],
    level: Level,
    ends: Callable[[Seen], bool],
    follow: Callable[[Any], None] | None = None,
) -> Iterator[_Sequence]:
    """Sequences of each family in turn, until one fails in the way that `ends` them."""
    requests = passes = 0
    for turn in range(max(1, job.requests // PER_SEQUENCE)):
        family, seed = families[turn % len(families)], turn + 1
        faults = job.faults and _with_faults(turn, len(families))
        outcome = _generate(_work(family, level, job.name, faults), seed, follow)
        figures = models().figures(outcome.hand)
        passes += figures.paths["passes"]
        requests += figures.requests
        failure, seen = outcome.failure, None
        if failure is not None:
            seen = Seen(failure.code, failure.kind, family, seed, passes, figures.wrong)
        yield _Sequence(passes, seen)
        if (seen is not None and ends(seen)) or requests >= job.requests:
            return


def _with_faults(turn: int, families: int) -> bool:
    """Whether actions may fail: in every other sequence of each family."""
    return bool((turn + (turn // families if families % 2 == 0 else 0)) % 2)


def _generate(work: PlantedWork, seed: int, follow: Callable[[Any], None] | None) -> play.Outcome:
    """One sequence with its mistake."""
    ops = operations.load()
    with planted(work.plant), work.time_limit():
        return play.generate(
            *(work.swarm(seed), ops, seed, work.operations, work.level),
            against=work.compares,
            follow=follow,
        )


@dataclass(frozen=True)
class PlantedWork(FamilyWork):
    """One sequence of a family with a mistake, and the fault that exposes it, if it names one."""

    def swarm(self, seed: int) -> Swarm:
        weights = weights_of(operations.load())
        if not self.plant:
            drawn: Swarm = models().drawn(self.model, seed, weights, self.faults)
            return drawn
        bug = _mistake(self.plant)
        faults = self.faults or (bool(bug.faults) and seed % 2 == 0)
        drawn = models().drawn(self.model, seed, weights, faults, bug.eviction, bug.wanted)
        return kill.beside(drawn, bug, seed)


def _work(family: str, level: Level, name: str, faults: bool = False) -> PlantedWork:
    against = SPEC if level == "every" else AGAINST[-1]
    model = ModelSettings(family)
    return PlantedWork(
        OPERATIONS, level=level, plant=name, against=against, model=model, faults=faults
    )


def _mistake(name: str) -> Bug:
    return wrong.load(name) if is_definition(name) else bugs.load(name)


def _families(job: PlantedJob) -> tuple[str, ...]:
    """Those that a definition names, or those with a bug's components; of these, those that are
    asked for."""
    mistake = _mistake(job.name)
    fitting: tuple[str, ...]
    if is_definition(job.name):
        fitting = mistake.families
    else:
        needed = set(mistake.components)
        asked = job.families or USUAL
        fitting = tuple(one for one in asked if needed <= set(_components(one))) or asked
    return tuple(one for one in fitting if one in (job.families or fitting))


def _components(family: str) -> tuple[str, ...]:
    return _work(family, "off", "").swarm(1).config.components
