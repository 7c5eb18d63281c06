"""The process of a peer: plays, shrinks and explains sequences, and answers in lines of JSON.

    python -S -m invariants.fuzz.child

Each line of its input is one request, {"do": "fuzz", ...}; the last line of each answer has "done".
The caller bounds its time and chooses what it may import (traces/peers). Whatever the engine prints
goes to the error stream.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from hicache.core.errors import CallerError
from invariants.fuzz import laws
from invariants.fuzz import target as base
from invariants.fuzz.draws import Draws
from invariants.fuzz.led import led, ran
from invariants.fuzz.minimal import shorten
from invariants.fuzz.operations import check
from invariants.fuzz.play import Failure, Outcome, Player
from invariants.fuzz.recorded import recording
from invariants.fuzz.script import Recorder
from invariants.fuzz.sequence import Act, Entry, Tape, dumps, loads
from invariants.fuzz.shrink import Search, ways_of_values
from invariants.fuzz.stubs import Stubs

HANGS = "the sequence does not end"
ENGINES = "invariants.fuzz.targets"
MEMORY = 6 << 30  # bytes that a sequence may take beyond the imported engine
MOST_PLAYS = 3000


class Child:
    def __init__(self, answers: TextIO) -> None:
        self.answers = answers
        self.module: ModuleType | None = None
        self.player: Player | None = None
        self.does: dict[str, Callable[..., None]] = {
            "open": self.open,
            "fuzz": self.fuzz,
            "draw": self.draw,
            "play": self.play,
            "shrink": self.shrink,
            "record": self.record,
            "script": self.script,
            "led": self.led,
            "ran": self.ran,
        }

    def say(self, **answer: Any) -> None:
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()

    def serve(self, requests: Iterator[str]) -> None:
        for line in requests:
            request = json.loads(line)
            try:
                self.does[request.pop("do")](**request)
            except CallerError as error:
                self.say(done=True, refused=str(error))

    @property
    def known(self) -> Player:
        assert self.player is not None, "opened first"
        return self.player

    # -- requests

    def open(
        self,
        peer: str,
        release: str,
        package: str,
        stubs: list[str],
        bare: list[str],
        own_check: bool = True,
    ) -> None:
        """Imports the engine of a peer. package: the real folder of its package."""
        hook = Stubs(stubs, bare, release)
        hook.install()
        self.module = module = import_module(f"{ENGINES}.{peer}")
        above = len(os.path.dirname(package)) + 1

        def where(file: str) -> str:
            path = os.path.realpath(file)
            return path[above:] if path.startswith(package + os.sep) else ""

        self.player = Player(module.PEER, peer.replace("_", "-"), release, where)
        self.player.own_check = own_check
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = _data() + MEMORY
        if most == resource.RLIM_INFINITY or most > limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        takes = {key: list(values) for key, values in module.PEER.TAKES.items()}
        stubbed = sorted(hook.replaced)
        self.say(done=True, takes=takes, reaches=list(module.PEER.REACHES), stubs=stubbed)

    def fuzz(self, seed: int, count: int, length: int, fixed: dict[str, Any]) -> None:
        """Plays the sequences of `count` seeds."""
        counts: Counter[str] = Counter()
        played = 0
        unfit = self.known.unfit
        for one in range(seed, seed + count):
            self.say(seed=one)
            outcome = self.known.generate(one, length, fixed)
            played += len(outcome.tape.entries)
            if outcome.hand is not None:
                counts.update(outcome.hand.counts)
                counts.update(outcome.hand.peer.counts)
            if outcome.failure is not None:
                self.say(failure=asdict(outcome.failure), tape=dumps(outcome.tape))
        self.say(done=True, operations=played, counts=counts, unfit=self.known.unfit - unfit)

    def draw(self, seed: int, length: int, fixed: dict[str, Any], seconds: float) -> None:
        """The tape of a sequence that ends the process, as far as it goes."""

        def play(write: Callable[[Any], None]) -> None:
            head = True

            def note(tape: Tape, entry: Entry) -> None:
                nonlocal head
                if head:
                    write(dumps(tape))
                head = False
                write(entry)

            self.known.generate(seed, length, fixed, note)

        written, _ = _apart(play, seconds)
        if not written:
            config = self.known.kind.draw(Draws(seed, "config"), fixed)
            written = [dumps(Tape(config, (), target=self.known.name, release=self.known.release))]
        found = [
            Entry(op, args, gap, poll, tuple(Act(*act) for act in acts))
            for op, args, gap, poll, acts in written[1:]
        ]
        tape = replace(loads(written[0]), entries=tuple(found))
        self.say(done=True, tape=dumps(tape), entries=len(found))

    def play(self, tape: str) -> None:
        unfit = self.known.unfit
        failure = self.known.replay(self._checked(tape)).failure
        self.say(done=True, failure=_document(failure), unfit=self.known.unfit - unfit)

    def shrink(self, tape: str, failure: dict[str, Any], seconds: float = 0) -> None:
        """Makes a failing tape small. seconds: each play is a process of its own, for failures that
        end or stop the process."""
        first = self._checked(tape)
        found = Failure(**failure | {"lines": ()})

        best = first

        def alike(one: Tape) -> Outcome:
            nonlocal best
            if search.tape is not best:
                best = search.tape
                smallest = search.shrunk()
                self.say(tape=dumps(best), failure=_document(smallest.failure))
            if seconds:
                return Outcome(one, self._apart(one, seconds), None)
            return self.known.replay(one)

        search = Search(first, found, alike, ways_of_values(self.known.kind.simpler), MOST_PLAYS)
        search.run()
        shrunk = search.shrunk()
        self.say(
            done=True,
            tape=dumps(shrunk.tape),
            failure=_document(shrunk.failure),
            plays=shrunk.plays,
        )

    def record(self, tape: str) -> None:
        """What the peer answers while it plays a tape: see recorded."""
        lines: list[str] = []
        known = self.known
        kind = recording(known.kind, lines)
        Player(kind, known.name, known.release, known.where).replay(self._checked(tape))
        self.say(done=True, lines=lines)

    def script(self, tape: str, head: str) -> None:
        """Writes the engine's own calls as a script."""
        recorder = Recorder(on=True)
        failure = self.known.replay(self._checked(tape), recorder).failure
        assert self.module is not None
        folder = Path(__file__).parent
        doubles = [folder / "targets" / name for name in getattr(self.module, "DOUBLES", ())]
        sources = [*doubles, Path(laws.__file__), Path(base.__file__)]
        shorten(recorder, sources, self.known.where)
        text = recorder.script(head, sources)
        self.say(done=True, script=text, gaps=recorder.gaps, failure=_document(failure))

    def led(self, tape: str) -> None:
        """The lines of the engine that led to the failure."""
        self.known.replay(self._checked(tape))  # runs what runs once in a process
        found = led(self.known, self._checked(tape))
        self.say(done=True, lines=[list(one) for one in found])

    def ran(self, tape: str) -> None:
        """The functions of the engine that run in it."""
        self.say(done=True, functions=ran(self.known, self._checked(tape)))

    def _checked(self, text: str) -> Tape:
        tape = loads(text)
        check(tape, self.known.ops)
        return tape

    def _apart(self, tape: Tape, seconds: float) -> Failure | None:
        """Plays a tape in a copy of this process, which may end or hang."""

        def play(write: Callable[[Any], None]) -> None:
            write(_document(self.known.replay(tape).failure))

        written, how = _apart(play, seconds)
        if not written:
            law = "HANG" if how == HANGS else "DEATH"
            return Failure(law, law, how, len(tape.entries))
        return None if written[0] is None else Failure(**written[0] | {"lines": ()})


def _apart(play: Callable[[Callable[[Any], None]], None], seconds: float) -> tuple[list[Any], str]:
    """Runs something in a copy of this process, which is ended after this time. Returns what it
    wrote, and how the copy ended, if it did not end by itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with os.fdopen(writer, "w", encoding="utf-8") as stream:

            def write(value: Any) -> None:
                stream.write(json.dumps(value) + "\n")
                stream.flush()

            play(write)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as lines:
        written = [json.loads(line) for line in lines if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        how = HANGS if number == signal.SIGALRM else f"the process ended with signal {number}"
        return written, how
    return written, f"the process ended with code {os.WEXITSTATUS(status)}" if status else ""


def _document(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else asdict(failure)


def _data() -> int:
    """Bytes of data that this process has."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 8 << 30


@contextmanager
def _own_output() -> Iterator[TextIO]:
    """The real output, for answers alone: whatever else is printed goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        yield answers
    finally:
        answers.close()


def main() -> None:
    with _own_output() as answers:
        Child(answers).serve(iter(sys.stdin.readline, ""))


if __name__ == "__main__":
    main()
