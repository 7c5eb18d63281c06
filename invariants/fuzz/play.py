"""Plays one sequence on a target, from an open cache to an empty one, and reports a failure.

Phases: the entries, with every law after each; finish: without faults, every request must end in a
bounded number of rounds; then everything is let go, and every pool must be whole again.
"""

import linecache
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hicache.core.errors import About
from invariants.fuzz.draws import Draws
from invariants.fuzz.laws import complete, judge
from invariants.fuzz.operations import Player, compute, operations, step
from invariants.fuzz.schedules import Job
from invariants.fuzz.script import Recorder
from invariants.fuzz.sequence import Act, Entry, FuzzSequence, Operation
from invariants.fuzz.target import Broken, Config, Target, Unfit, need

ACTS = 2
GAPS = (0, 1, 1, 5, 40)
TRIES = 8
FAULTS = 40  # percent of the sequences in which transfers fail
ORDERS = ("time", "time", "heavy", "priority", "pct", "starve")  # of due replies: see schedules
STALE = 4  # rounds of evictions without an effect, after which what is left stays
ROUNDS = 40  # for each request, and for each of its tokens on a server


@dataclass(frozen=True)
class Failure:
    """A failure. code: its law, or the exit code of a failure of our core. kind: equal for failures
    of the same sort. at: number of entries played. about: objects whose story explains it. event,
    event_text: the number of the last event before it, from 1, or 0; that event. lines: of the
    engine in the traceback, the innermost first: file, line, function, text."""

    code: Any
    kind: str
    text: str
    at: int
    about: tuple[About, ...] = ()
    event: int = 0
    event_text: str = ""
    lines: tuple[tuple[str, int, str, str], ...] = ()


@dataclass(frozen=True)
class Played:
    """The result of a sequence. sequence: the entries as played. player: None if the target could
    not be opened; the failure is that of opening it, or None if it is unfit."""

    sequence: FuzzSequence
    failure: Failure | None
    player: Any


Note = Callable[[FuzzSequence], None]
Where = Callable[[str], str]  # the path of a file of the engine, as a report names it, or ""


class TargetPlayer:
    """Plays sequences on one target of one release."""

    def __init__(self, kind: type[Target], name: str, release: str, where: Where) -> None:
        self.kind, self.name, self.release, self.where = kind, name, release, where
        self.ops = operations(kind)
        self.weights = [(name, op.weight) for name, op in self.ops.items()]

    def generate(
        self, seed: int, length: int, fixed: Config | None = None, note: Note | None = None
    ) -> Played:
        """Draws and plays a sequence. length: number of entries. note: gets the sequence up to each
        entry before it is played."""
        draws = Draws(seed, "config")
        config = self.kind.draw(draws, fixed or {})
        order = draws.choice(ORDERS)
        order += f":{draws.below(1 << 20)}" if order == "pct" else ""
        order += f":{draws.below(5)}:4" if order == "starve" else ""
        faults = draws.choice((8, 30)) if draws.chance(FAULTS) else 0
        sequence = FuzzSequence(config, (), seed, order, target=self.name, release=self.release)
        drawing = Draws(seed, "entries")

        def entries(player: Player) -> Iterator[Entry]:
            drawn: list[Entry] = []
            for _ in range(length):
                drawn.append(self._next(player, drawing, faults))
                if note is not None:
                    note(replace(sequence, entries=tuple(drawn)))
                yield drawn[-1]

        if note is not None:
            note(sequence)
        return self._run(sequence, entries)

    def replay(self, sequence: FuzzSequence, recorder: Recorder | None = None) -> Played:
        """Plays a sequence. recorder: writes the calls of the engine."""
        return self._run(sequence, lambda player: sequence.entries, recorder)

    def _next(self, player: Player, draws: Draws, faults: int) -> Entry:
        for _ in range(TRIES):
            name = draws.weighted(self.weights)
            args = self.ops[name].draw(player, draws)
            if args is not None:
                acts: tuple[Act, ...] = ()
                if player.target.can.host:
                    acts = tuple([_act(draws, faults) for _ in range(ACTS)])
                return Entry(name, args, draws.choice(GAPS), draws.chance(70), acts)
        return Entry("wait", {"polls": 1})

    def _run(
        self,
        sequence: FuzzSequence,
        entries: Callable[[Player], Iterable[Entry]],
        recorder: Recorder | None = None,
    ) -> Played:
        played: list[Entry] = []
        player = target = failure = None
        try:
            target = self.kind(sequence.config, recorder or Recorder())
            player = Player(target, sequence.order)
            for entry in entries(player):
                played.append(entry)
                play_entry(player, self.ops, entry)
            finish(player)
            empty(player)
        except Unfit:
            pass
        except Exception as error:
            failure = self._failure_of(error, len(played))
        if target is not None:
            target.close()
        return Played(replace(sequence, entries=tuple(played)), failure, player)

    def _failure_of(self, error: Exception, at: int) -> Failure:
        """What an error says: a law that is broken, or an error of the engine."""
        lines: dict[tuple[str, int, str, str], None] = {}  # each once, or a recursion fills it
        for frame, number in reversed([*traceback.walk_tb(error.__traceback__)]):
            code = frame.f_code
            if file := self.where(code.co_filename):
                text = linecache.getline(code.co_filename, number).strip()
                lines[file, number, code.co_name, text] = None
        if isinstance(error, Broken):
            return Failure(error.law, error.kind, error.text, at, lines=tuple(lines))
        text = f"{type(error).__name__}: {str(error)[:500]}"
        if not lines:
            last = traceback.extract_tb(error.__traceback__)[-1]
            text += f" ({last.filename.rpartition('/')[2]}:{last.lineno})"
            return Failure("HARNESS", f"HARNESS {type(error).__name__}", text, at)
        file, _, function, _ = next(iter(lines))
        site = f"{type(error).__name__} {file.rpartition('/')[2]} {function}"
        return Failure("CRASH", f"CRASH {site}", text, at, lines=tuple(lines))


def _act(draws: Draws, faults: int) -> Act:
    roll = draws.below(1600)  # one number for delay and tie
    delay = 1000 if roll < 160 else roll % 13
    return Act(delay, roll // 13 % 4, "fail" if faults and draws.chance(faults) else "")


def play_entry(player: Player, ops: dict[str, Operation], entry: Entry) -> None:
    """Plays one entry, and judges the state after it. Raises Broken, and what the engine raises."""
    player.begin(entry.op, entry.gap, entry.poll, entry.acts)
    op = ops.get(entry.op)
    if op is not None:
        op.play(player, entry.args)
        player.collect()
    look(player)


def look(player: Player) -> None:
    """Judges the state. Idle: nothing runs or is in transfer."""
    target, idle = player.target, not player.jobs and not player.pending
    target.recorder.check(judge, target.pools(), idle)
    target.laws()
    try:
        target.self_check()
    except Broken:
        raise
    except AssertionError as error:
        message = str(error).strip().splitlines()
        kind = message[0].partition(":")[0][:80] if message else ""
        raise Broken("OWN-CHECK", " ".join(message)[:400] or "an assertion", kind) from error


def finish(player: Player) -> None:
    """Serves every request to its end, without faults. Raises Broken("PROGRESS")."""
    player.settle()
    if player.target.can.serves:
        _serve(player)
    else:
        _schedule(player)
    player.settle()


def _serve(player: Player) -> None:
    for _ in range(ROUNDS * (1 + sum(1 + job.more for job in player.jobs.values()))):
        if not player.jobs:
            return
        step(player)
        player.settle()
        look(player)
    if player.jobs:
        player.target.judge_ends()
        text = ", ".join(f"request {job.id}" for job in player.jobs.values())
        raise Broken("PROGRESS", f"with every transfer answered, {text} never ends")


def _schedule(player: Player) -> None:
    """First come, first served, one at a time. Of those that run, one goes on, the others end."""
    jobs = sorted(player.jobs.values(), key=lambda job: job.id)
    running = [job for job in jobs if job.stage != "waiting"]
    waiting = [job for job in jobs if job.stage == "waiting"]
    for job in (*running[1:], *running[:1], *waiting):
        if job not in running[1:] and player.target.fits(job):
            _finish_alone(player, job)
        elif job.stage != "waiting":
            player.target.finish(job, False)
        else:
            player.target.leave(job)
        player.end(job)
        player.settle()
        look(player)


def _finish_alone(player: Player, job: Job) -> None:
    """The only request that runs: it must be admitted and computed."""
    admitted = job.stage != "waiting"
    for _ in range(ROUNDS):
        if not admitted and player.target.admit(job) is not None:
            admitted, job.stage = True, "idle"
        player.settle()
        if admitted and (job.stage == "decoding" or compute(player, job, job.prompt)):
            return player.target.finish(job, True)
    what = "computed" if admitted else "admitted"
    text = f"request {job.id} of {len(job.tokens)} tokens runs alone and is never {what}"
    raise Broken("PROGRESS", text, what)


def empty(player: Player) -> None:
    """Lets everything go: every pool must be whole again."""
    before, same = [-1], 0
    while any(before) and same < STALE:
        player.target.release_all()
        player.settle()
        left = [pool.slots // pool.page - pool.free for pool in player.target.pools()]
        before, same = left, same + 1 if left == before else 0
    look(player)
    need(not player.pending, "QUIESCENCE", "transfers are under way after the end")
    player.target.recorder.check(complete, player.target.pools())
