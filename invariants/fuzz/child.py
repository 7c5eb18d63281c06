"""The process of an engine: plays, shrinks and explains sequences, and answers in lines of JSON.

    python -P -m invariants.fuzz.child

Each line of its input is one request, {"do": "fuzz", ...}; the last line of each answer has "done",
or "refused". The caller bounds its time and chooses what it may import (traces/fuzzing/session).
Whatever the engine prints goes to the error stream, and its stack, when it gets SIGUSR1.
"""

import faulthandler
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TextIO

from hicache.core.errors import CallerError
from invariants.fuzz import laws, target
from invariants.fuzz.own import Own
from invariants.fuzz.play import Failure, Played, TargetPlayer
from invariants.fuzz.script import Recorder
from invariants.fuzz.sequence import FuzzSequence, check, dumps, loads
from invariants.fuzz.shrink import Search, ways_of_values
from invariants.fuzz.stubs import Stubs
from invariants.fuzz.target import Can, Target

MEMORY = 12 << 30  # bytes of data that the process may have
MOST_PLAYS, SHRINK_S = 3000, 45.0  # of one failure, to shrink it


class Child:
    module: ModuleType
    known: TargetPlayer

    def __init__(self, answers: TextIO) -> None:
        self.answers = answers

    def say(self, **answer: Any) -> None:
        self.answers.write(json.dumps(answer, default=asdict) + "\n")
        self.answers.flush()

    def serve(self, requests: Iterator[str]) -> None:
        for line in requests:
            request = json.loads(line)
            try:
                getattr(self, f"do_{request.pop('do')}")(**request)
            except CallerError as error:
                self.say(refused=str(error))

    # -- requests

    def do_open(self, name: str, release: str, package: str, loads: Any, **stubs: Any) -> None:
        """Imports an engine, or the user's file. package: the real folder of its package."""
        Stubs(**stubs, version=release).install()
        if loads:
            self.module, kind = loaded(*loads)
        else:
            self.module = import_module(f"invariants.fuzz.targets.{name}")
            kind = self.module.TARGET
        above = len(package if loads else os.path.dirname(package)) + 1

        def where(file: str) -> str:
            path = os.path.realpath(file)
            return path[above:] if path.startswith(package + os.sep) else ""

        self.known = TargetPlayer(kind, name, release, where)
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        if most == resource.RLIM_INFINITY or most > MEMORY:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, most))
        self.say(done=True, takes=kind.TAKES)

    def do_fuzz(self, seed: int, count: int, length: int, fixed: dict[str, Any]) -> None:
        """Plays the sequences of `count` seeds, and answers with a line for each."""
        for each in range(seed, seed + count):
            began = time.process_time_ns()
            try:
                outcome = self.known.generate(each, length, fixed)
            except Exception as error:  # of what is outside the sequence
                text = f"{self.known.name}: draw: {type(error).__name__}: {error}"
                raise CallerError(text) from error
            message: dict[str, Any] = {"seed": each, "busy_ns": time.process_time_ns() - began}
            message |= {"operations": len(outcome.sequence.entries), "counts": _counts(outcome)}
            message |= {"sequence": dumps(outcome.sequence)} if outcome.failure else {}
            last = {"done": True} if each == seed + count - 1 else {}
            self.say(failure=outcome.failure, **message, **last)

    def do_draw(self, seed: int, length: int, fixed: dict[str, Any]) -> None:
        """Draws a sequence that ends the process, and says it before each entry is played."""
        outcome = self.known.generate(
            seed, length, fixed, lambda sequence: self.say(sequence=dumps(sequence))
        )
        self.say(done=True, sequence=dumps(outcome.sequence))

    def do_play(self, sequence: str) -> None:
        outcome = self.known.replay(self._checked(sequence))
        unfit = outcome.player is None and outcome.failure is None
        self.say(done=True, counts=_counts(outcome), failure=outcome.failure, unfit=unfit)

    def do_shrink(self, sequence: str, failure: dict[str, Any], seconds: float) -> None:
        """Makes a failing sequence small, and answers with each smaller one. seconds: each play is
        a process of its own, for failures that end or stop the process; 0 for others."""
        best = first = self._checked(sequence)

        def alike(each: FuzzSequence) -> Played:
            nonlocal best
            if search.sequence is not best:
                best = search.sequence
                self.say(sequence=dumps(best), failure=search.failure)
            if seconds:
                return Played(each, self._apart(each, seconds), None)
            return self.known.replay(each)

        ways = ways_of_values(self.known.kind.simpler)
        search = Search(first, Failure(**failure), alike, ways, MOST_PLAYS, SHRINK_S)
        search.run()
        self.say(done=True, sequence=dumps(search.sequence), failure=search.failure)

    def do_explain(self, sequence: str, head: str) -> None:
        """The functions of the engine that run in a sequence, what was answered to each entry, and
        the engine's own calls as a script."""
        played = self._checked(sequence)
        self.known.replay(played)  # runs what runs once in a process
        ran: set[Any] = set()

        def called(frame: FrameType, what: str, value: Any) -> None:
            if what == "call":
                ran.add(frame.f_code)

        sys.setprofile(called)
        outcome = self.known.replay(played)
        sys.setprofile(None)
        functions = {(self.known.where(code.co_filename), code.co_name) for code in ran}
        answers = [
            ", ".join(f"{key}={value}" for key, value in answer.items() if key != "op")
            for answer in (outcome.player.answers if outcome.player else ())
        ]
        script, known = self._script(played, head), sorted(pair for pair in functions if pair[0])
        self.say(done=True, functions=known, answers=answers, script=script)

    def _script(self, sequence: FuzzSequence, head: str) -> str:
        recorder, doubles = Recorder(on=True), getattr(self.module, "DOUBLES", ())
        if not doubles or self.known.replay(sequence, recorder).failure is None:
            return ""
        sources = [Path(__file__).parent / "targets" / name for name in doubles]
        return recorder.script(head, [*sources, Path(laws.__file__), Path(target.__file__)])

    def _checked(self, text: str) -> FuzzSequence:
        sequence = loads(text)
        check(sequence, self.known.ops)
        return sequence

    def _apart(self, sequence: FuzzSequence, seconds: float) -> Failure | None:
        """Whether a sequence ends or stops a copy of this process, and how."""
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            self.known.replay(sequence)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        law = "HANG" if os.WTERMSIG(status) == signal.SIGALRM else "DEATH"
        return Failure(law, law, "", len(sequence.entries)) if status else None


def loaded(path: str, name: str) -> tuple[ModuleType, type[Target]]:
    """The user's file and the class in it. Raises CallerError."""
    at = f"{path.rpartition('/')[2]}:{name}"
    spec: Any = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}"
        raise CallerError(f"{at}: expected a file that can be imported, found {text}") from None
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Target)):
        text = "no such class" if kind is None else f"another {type(kind).__name__}"
        raise CallerError(f"{at}: expected a class derived from {Target.__name__}, found {text}")
    own = {key for base in kind.__mro__[: kind.__mro__.index(Target)] for key in vars(base)}
    lacks = {*getattr(kind, "__abstractmethods__", ())} | (_calls(kind.can) - own)
    copies = ("begun", "done") if kind.can.host else ()
    lacks |= {call for call in copies if getattr(kind, call, None) is getattr(Own, call)}
    if lacks:
        calls = ", ".join(sorted(lacks))
        raise CallerError(f"{at}: expected the calls that its `can` promises, missing: {calls}")
    return module, kind


def _calls(can: Can) -> set[str]:
    """The calls that a class must have."""
    calls = {"draw", "pools", "release_all"}
    calls |= {"step"} if can.serves else {"match", "admit", "prefill", "decode", "finish"}
    calls |= {"transfers", "answer"} if can.host else set()
    optional = {"abort": can.aborts, "reset": can.resets, "evict": can.evicts}
    optional["retract"] = can.retracts and not can.serves
    return calls | {call for call, needed in optional.items() if needed}


def _counts(outcome: Played) -> Counter[str]:
    return outcome.player.counts + outcome.player.target.counts if outcome.player else Counter()


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed goes to the error stream
    Child(answers).serve(iter(sys.stdin.readline, ""))


if __name__ == "__main__":
    main()
