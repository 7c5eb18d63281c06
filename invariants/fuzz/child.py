"""The process of an engine: plays, shrinks and explains sequences, and answers in lines of JSON.

    python -P -m invariants.fuzz.child

Each line of its input is one request, {"do": "fuzz", ...}; the last line of each answer has "done",
or "refused". The caller bounds its time and chooses what it may import (traces/fuzzing/session).
Whatever the engine prints goes to the error stream, and its stack, when it gets SIGUSR1.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TextIO

from hicache.core.errors import CallerError
from invariants.fuzz import laws, target
from invariants.fuzz.draws import Draws
from invariants.fuzz.operations import check
from invariants.fuzz.play import Failure, Outcome, Player
from invariants.fuzz.script import Recorder, shorten
from invariants.fuzz.sequence import Act, Entry, Tape, dumps, loads
from invariants.fuzz.shrink import Search, ways_of_values
from invariants.fuzz.stubs import Stubs
from invariants.fuzz.target import Can, Peer

HANGS = "the sequence does not end"
ENGINES = "invariants.fuzz.targets"
MEMORY = 6 << 30  # bytes that a sequence may take beyond the imported engine
MOST_PLAYS = 3000


class Child:
    def __init__(self, answers: TextIO) -> None:
        self.answers = answers
        self.module: ModuleType | None = None
        self.player: Player | None = None

    def say(self, **answer: Any) -> None:
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()

    def serve(self, requests: Iterator[str]) -> None:
        does: dict[str, Callable[..., None]] = {
            "open": self.open,
            "fuzz": self.fuzz,
            "draw": self.draw,
            "play": self.play,
            "shrink": self.shrink,
            "explain": self.explain,
        }
        for line in requests:
            request = json.loads(line)
            try:
                does[request.pop("do")](**request)
            except CallerError as error:
                self.say(refused=str(error))

    @property
    def known(self) -> Player:
        assert self.player is not None, "opened first"
        return self.player

    # -- requests

    def open(
        self,
        name: str,
        release: str,
        package: str,
        stubs: list[str],
        bare: list[str],
        loads: list[str],
    ) -> None:
        """Imports an engine, or the user's file. package: the real folder of its package."""
        hook = Stubs(stubs, bare, release)
        hook.install()
        if loads:
            self.module, kind = loaded(*loads)
        else:
            self.module = import_module(f"{ENGINES}.{name.replace('-', '_')}")
            kind = self.module.PEER
        above = len(package if loads else os.path.dirname(package)) + 1

        def where(file: str) -> str:
            path = os.path.realpath(file)
            return path[above:] if path.startswith(package + os.sep) else ""

        self.player = Player(kind, name, release, where)
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = _data() + MEMORY
        if most == resource.RLIM_INFINITY or most > limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        takes = {key: list(values) for key, values in kind.TAKES.items()}
        self.say(done=True, takes=takes, reaches=list(kind.REACHES), stubs=sorted(hook.replaced))

    def fuzz(self, seed: int, count: int, length: int, fixed: dict[str, Any]) -> None:
        """Plays the sequences of `count` seeds, and answers with a line for each."""
        for each in range(seed, seed + count):
            began = time.process_time_ns()
            outcome = self._drawn(each, length, fixed)
            busy, failure = time.process_time_ns() - began, _document(outcome.failure)
            said = {"counts": _counts(outcome), "busy_ns": busy, "failure": failure}
            said |= {"operations": len(outcome.tape.entries), "seed": each}
            last = {"done": True} if each == seed + count - 1 else {}
            self.say(tape=dumps(outcome.tape) if failure else "", **said, **last)

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
        outcome = self.known.replay(self._checked(tape))
        said = {"failure": _document(outcome.failure), "unfit": self.known.unfit - unfit}
        self.say(done=True, counts=_counts(outcome), **said)

    def shrink(self, tape: str, failure: dict[str, Any], seconds: float = 0) -> None:
        """Makes a failing tape small, and answers with each smaller one. seconds: each play is a
        process of its own, for failures that end or stop the process."""
        best = first = self._checked(tape)

        def alike(each: Tape) -> Outcome:
            nonlocal best
            if search.tape is not best:
                best = search.tape
                self.say(tape=dumps(best), failure=_document(search.shrunk().failure))
            if seconds:
                return Outcome(each, self._apart(each, seconds), None)
            return self.known.replay(each)

        ways = ways_of_values(self.known.kind.simpler)
        search = Search(first, Failure(**failure), alike, ways, MOST_PLAYS)
        search.run()
        small = search.shrunk()
        self.say(done=True, tape=dumps(small.tape), failure=_document(small.failure))

    def explain(self, tape: str, head: str) -> None:
        """The functions of the engine that run in a tape, what was answered to each entry, and the
        engine's own calls as a script."""
        played = self._checked(tape)
        self.known.replay(played)  # runs what runs once in a process
        ran: set[Any] = set()

        def called(frame: FrameType, what: str, value: Any) -> None:
            if what == "call":
                ran.add(frame.f_code)

        sys.setprofile(called)
        outcome = self.known.replay(played)
        sys.setprofile(None)
        functions = {(self.known.where(code.co_filename), code.co_name) for code in ran}
        answers = outcome.hand.answers if outcome.hand else []
        said = [
            ", ".join(f"{key}={value}" for key, value in answer.items() if key != "op")
            for answer in answers
        ]
        known = sorted(pair for pair in functions if pair[0])
        self.say(done=True, functions=known, answers=said, script=self._script(played, head))

    def _script(self, tape: Tape, head: str) -> str:
        recorder, doubles = Recorder(on=True), getattr(self.module, "DOUBLES", ())
        if not doubles or self.known.replay(tape, recorder).failure is None:
            return ""
        folder = Path(__file__).parent
        sources = [folder / "targets" / name for name in doubles]
        sources += [Path(laws.__file__), Path(target.__file__)]
        shorten(recorder, sources, self.known.where)
        return recorder.script(head, sources)

    def _drawn(self, seed: int, length: int, fixed: dict[str, Any]) -> Outcome:
        try:
            return self.known.generate(seed, length, fixed)
        except Exception as error:  # of what is outside the sequence
            text = f"{self.known.name}: draw: {type(error).__name__}: {error}"
            raise CallerError(text) from error

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
        return None if written[0] is None else Failure(**written[0])


def loaded(path: str, name: str) -> tuple[ModuleType, type[Peer]]:
    """The user's file and the class in it. Raises CallerError."""
    at = f"{path.rpartition('/')[2]}:{name}"
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(path).stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CallerError(
            f"{at}: expected a file that can be imported, found {type(error).__name__}: {error}"
        ) from None
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Peer)):
        found = "no such class" if kind is None else f"another {type(kind).__name__}"
        raise CallerError(f"{at}: expected a class derived from {Peer.__name__}, found {found}")
    own = {key for base in kind.__mro__[: kind.__mro__.index(Peer)] for key in vars(base)}
    if missing := [call for call in _calls(kind.can) if call not in own]:
        raise CallerError(
            f"{at}: expected the calls that its `can` promises, {missing[0]} is missing"
        )
    return module, kind


def _calls(can: Can) -> list[str]:
    """The calls that a class must have."""
    calls = ["draw", "pools", "let_go"]
    calls += ["step"] if can.serves else ["match", "admit", "prefill", "decode", "finish"]
    optional = {
        "transfers": can.host,
        "answer": can.host,
        "retract": can.retracts and not can.serves,
        "abort": can.aborts,
        "reset": can.resets,
        "evict": bool(can.evicts),
    }
    return calls + [call for call, needed in optional.items() if needed]


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


def _counts(outcome: Outcome) -> Counter[str]:
    hand = outcome.hand
    return Counter() if hand is None else hand.counts + hand.peer.counts


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
    faulthandler.register(signal.SIGUSR1)
    with _own_output() as answers:
        Child(answers).serve(iter(sys.stdin.readline, ""))


if __name__ == "__main__":
    main()
