"""The target `hicache`: this project's own core, played in the worker processes of the machine."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hicache import registry
from hicache.core.errors import CallerError, unknown
from invariants import production
from invariants.base import CRASH, HARNESS, INVARIANT, NONDETERMINISM
from invariants.differential import SPEC_KIND
from invariants.fuzz import play as playing
from invariants.fuzz import sequence as sequences
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import COMPONENTS, MOST_PASSES, ConfigSample, sample_config
from invariants.fuzz.hicache.player import STATES
from invariants.fuzz.sequence import MOST_RANKS, FuzzSequence
from invariants.fuzz.shrink import WAYS, Search
from sim.errors import StuckError

from .. import executors, plugins
from ..terminal import options as read
from ..terminal.signals import alarm
from ..terminal.streams import command_line
from .results import Failure, Result

PLAYS = 1000  # of one failure, to shrink it
LEAST_S, PER_ENTRY_S = 60.0, 0.05  # far more than a sequence takes on a busy machine
_POLICIES = {"write_policy": registry.WRITE_POLICIES, "eviction": registry.EVICTION_POLICIES}
_SETTINGS: dict[str, Callable[[str], Any]] = {
    "components": read.choice([",".join(names) for names in COMPONENTS]),
    **{key: plugins.plugin(package) for key, package in _POLICIES.items()},
    "ranks": read.between(1, MOST_RANKS),
    "passes": read.between(1, MOST_PASSES),
}


def configured(texts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The settings that are not drawn. Raises CallerError."""
    result: dict[str, Any] = {}
    for key, text in texts:
        if key not in _SETTINGS:
            raise unknown("setting of hicache", key, [*_SETTINGS])
        try:
            result[key] = _SETTINGS[key](text)
        except ValueError as error:
            raise CallerError(f"--config {key}: {error}") from None
    return result


def limit(entries: int) -> AbstractContextManager[None]:
    """Raises StuckError in a block that computes too long for a sequence of so many entries."""
    seconds = LEAST_S + PER_ENTRY_S * entries
    text = f"one sequence was still at work after {seconds:g} s of computing"
    return alarm(seconds, StuckError(text))


@dataclass(frozen=True)
class Work:
    """The core as a target, with everything that a worker needs except the seed. A call plays one
    sequence. config: what is not drawn. loaded: policies of the user."""

    operations: int
    config: tuple[tuple[str, Any], ...] = ()
    output: str = ""
    loaded: plugins.Loaded = ()
    jobs: int = 0
    hash_seed: int = 0
    reaches: Sequence[str] = STATES

    def results(self, seeds: Iterator[int]) -> Generator[Result]:
        how = executors.JobOptions(_lost, hash_seed=self.hash_seed)
        yield from executors.run(executors.LOCAL, self.jobs, self, seeds, how)

    def named(self, failure: Failure) -> Failure:
        return failure  # none is known

    def __call__(self, seed: int) -> Result:
        started = time.process_time_ns()
        plugins.load(self.loaded)
        with limit(self.operations):
            try:
                outcome = play.generate(self.sample(seed), self.operations)
            except CallerError as error:  # of a policy of the user
                raise CallerError(f"{error}; to repeat it: {self.command(seed)}") from error
        player, sequence = outcome.player, outcome.sequence
        failure = self.failure(outcome.failure, sequence) if outcome.failure else None
        busy, counts = time.process_time_ns() - started, player.counts + player.probes.seen
        return Result(seed, len(sequence.entries), player.events, busy, counts, failure)

    def sample(self, seed: int) -> ConfigSample:
        row = dict(self.config)
        names = tuple(part for part in row.get("components", "").split(",") if part)
        more = {key: row[key] for key in ("ranks", "eviction", "passes") if key in row}
        return sample_config(seed, names, row.get("write_policy", ""), **more)

    def shrunk(self, drawn: Failure) -> Failure:
        """The same failure of a smaller sequence, told with its operations. One whose sequence
        fails in another way, or not at all, is a failure of its own."""

        def play_one(sequence: FuzzSequence) -> playing.Played:
            with limit(self.operations):
                return play.replay(sequence)

        sequence = sequences.loads(drawn.sequence)
        failure = play_one(sequence).failure
        if failure is None or (failure.code, failure.kind) != (drawn.code, drawn.kind):
            again = f"{failure.code} {failure.kind}" if failure else "nothing"
            text = (
                "REPLAY: A sequence must fail as it did when it was drawn.\n"
                f"    drawn: {drawn.code} {drawn.kind}, replayed: {again}\n{drawn.text}"
            )
            code = NONDETERMINISM if failure else HARNESS
            return replace(drawn, code=code, kind="REPLAY", text=text)
        small = Search(sequence, failure, play_one, WAYS, PLAYS).run().sequence
        path = self.path(replace(drawn, sequence=sequences.dumps(small)))
        with limit(self.operations):
            message = play.replay(small, name=path, explained=True).failure
        return self.failure(message, small) if message else drawn

    def failure(self, failure: playing.Failure, sequence: FuzzSequence) -> Failure:
        """The failure as a result. Its text ends with the command that repeats it."""
        text = sequences.dumps(sequence)
        event = failure.event, failure.event_text
        made = Failure(failure.code, failure.kind, "", failure.at, text, *event)
        words = ["hicache", "fuzz", "--replay", self.path(made), *outside_options()]
        lines = [failure.text.rstrip("\n")]
        if seed := os.environ.get("PYTHONHASHSEED", ""):
            lines.append(f"hash seed: PYTHONHASHSEED={seed}")
        return replace(made, text="\n".join([*lines, f"replay: {command_line(words)}"]))

    def path(self, failure: Failure) -> str:
        return str(Path(self.output) / f"{failure.name}.jsonl")

    def command(self, seed: int) -> str:
        """The command that plays the sequence of this seed alone."""
        words = ["hicache", "fuzz", "--seed", str(seed), "--sequences", "1"]
        words += ["--operations", str(self.operations)]
        for key, value in self.config:
            text = plugins.spelled(_POLICIES[key], value) if key in _POLICIES else value
            words += ["--config", f"{key}={text}"]
        return command_line(words)


def outside_options() -> list[str]:
    """The options that load the policies of the user again."""
    keys = {package: key for key, package in _POLICIES.items()}
    pairs = [(keys[package], text) for package, text in plugins.environment() if package in keys]
    return [word for key, text in pairs for word in ("--config", f"{key}={text}")]


def _lost(seed: int, open_sequences: int, how_ended: str) -> str:
    return (
        f"a worker was lost near the sequence of seed {seed}: {how_ended}; to repeat it in one "
        f"process, use the same options and --seed {seed} --sequences {open_sequences} --jobs 1"
    )


def replay(path: str, text: str) -> tuple[Failure | None, dict[str, Any]]:
    """Plays one sequence exactly. Returns its failure and what its document has besides."""
    if text.startswith(production.BEGIN):  # events of a cache that served
        kind, message, at, events = production.replay(path, text)
        code = INVARIANT if kind.startswith(SPEC_KIND) else CRASH
        about = {"events": events, "counts": {}, "entries": events}
        return Failure(code, kind, message, at, text), about
    sequence = sequences.loads(text, path)
    with limit(len(sequence.entries)):
        outcome = play.replay(sequence, name=path, explained=True)
    player, failure = outcome.player, outcome.failure
    counts = dict(sorted((player.counts + player.probes.seen).items()))
    about = {"events": player.events, "counts": counts, "entries": len(sequence.entries)}
    if failure is None:
        return None, about
    command = command_line(["hicache", "fuzz", "--replay", path, *outside_options()])
    message = f"{failure.text.rstrip()}\nreplay: {command}"
    return Failure(failure.code, failure.kind, message, failure.at, text), about
