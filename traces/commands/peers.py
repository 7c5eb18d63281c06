"""`hicache peers`: engines that people run, under this harness. `fuzz` draws sequences for one,
checks each, and keeps what fails; `play` plays one tape on its engine, and explains how it fails,
or runs a script that was written for one.

They are played in the engine's own process (see peers/session), whose time and memory are bounded
here.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

from hicache.core.errors import CallerError, unknown
from hicache.files import text_of
from invariants.fuzz.sequence import dumps
from invariants.fuzz.sequence import read as read_tape

from ..peers.failures import NEW_FAILURE, described, explained, told, work_up
from ..peers.session import SOURCE_HELP, Answer, Ended, Session, engine_of, script_fails
from ..results.record import head
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_folder, check_outputs, write_json, write_whole
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe

SECONDS = 60
BATCH = 8  # sequences for which the engine is asked at a time
HANG_S = 60.0  # without a sequence that ends
DRAW_S = 20.0  # to draw a sequence again that ends the process
PLAY_S = 120.0
MOST_KINDS = 40
MOST_ENDED = 20  # times that the process is started again
COUNTED = ("sequences", "operations", "operations_per_second")


# -- fuzz


def setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE of an engine's configuration."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"expected KEY=VALUE, such as page=4, found {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@dataclass(frozen=True, slots=True)
class FuzzOptions(OptionRecord):
    engine: str = option(
        "hicache, sglang or vllm",
        read.name,
        "ENGINE",
        positional=True,
        default="",
    )
    seconds: int | None = option(
        f"stop after this many seconds (default: {SECONDS}; none with --sequences)",
        read.at_least(1),
        "S",
    )
    sequences: int | None = option("stop after N sequences", *read.COUNT)
    operations: int = option("operations in a sequence", read.between(1, 10_000), "N", default=100)
    seed: int = option("seed of the first sequence", read.at_least(0), default=0)
    config: tuple[tuple[str, Any], ...] = option(
        "fix one setting that is otherwise drawn, such as page=4; may be repeated",
        setting,
        "KEY=VALUE",
        several=True,
        default=(),
    )
    first: bool = option("stop at the first failure that is not known", default=False)
    no_own_check: bool = option(
        "leave out the engine's own check of its state; the laws judge alone", default=False
    )
    source: str | None = option(SOURCE_HELP, read.name, "DIR")
    output: str = option(
        "folder for tapes and scripts", read.name, "DIR", short="-o", default="peer-failures"
    )
    json: str | None = option("also write the results as JSON; - is stdout", *read.OUTPUT)


def fuzz(options: FuzzOptions, command: str) -> int:
    """Returns 0 if every failure is known, else 11."""
    check_outputs({}, json=options.json)
    check_folder(options.output, f"--output {options.output}")
    stream = sys.stderr if options.json == "-" else sys.stdout
    with Session(engine_of(options.engine, options.source), not options.no_own_check) as session:
        session.start()
        hunt = Hunt(session, options, configured(session, options.config))
        complete = hunt.run()
        new = any(one["known"] is None for one in hunt.kinds.values())
        with ignore_broken_pipe():
            hunt.show(stream)
        if options.json:
            write_json(options.json, head(command, complete=complete) | hunt.document())
    return (NEW_FAILURE if new else 0) if complete else INTERRUPTED


def configured(session: Session, given: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The fixed part of a configuration. Raises CallerError for what the engine does not take."""
    name, takes = session.engine.facts.name, session.opened["takes"]
    for key, value in given:
        if key not in takes:
            raise unknown(f"setting of {name}", key, list(takes))
        if takes[key] and value not in takes[key]:
            raise unknown(f"{key} of {name}", str(value), [str(one) for one in takes[key]])
        if not takes[key] and (type(value) is not int or value < 0):
            raise CallerError(f"{name}: {key}: expected a whole number, found {value!r}")
    return dict(given)


@dataclass
class Hunt:
    """A run. seconds: of playing, without shrinking and explaining."""

    session: Session
    options: FuzzOptions
    fixed: dict[str, Any]
    sequences: int = 0
    unfit: int = 0
    operations: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: int = 0

    def run(self) -> bool:
        """Plays sequences until the time or their number is used up. Returns False if it was
        interrupted."""
        options = self.options
        limit = options.seconds or (float("inf") if options.sequences else SECONDS)
        most = options.sequences or float("inf")
        due = time.monotonic() + 10
        try:
            while self.sequences < most and self.seconds < limit:
                self._play(int(min(BATCH, most - self.sequences)))
                if options.first and any(one["known"] is None for one in self.kinds.values()):
                    break
                if len(self.kinds) >= MOST_KINDS or self.ended >= MOST_ENDED:
                    _tell("too many kinds of failures; no more are looked for")
                    break
                if time.monotonic() > due:
                    due = time.monotonic() + 10
                    _tell(f"{self.sequences} sequences, {len(self.kinds)} kinds of failures")
        except KeyboardInterrupt:
            return False
        return True

    def _play(self, count: int) -> None:
        """Plays some sequences. The first failure of each kind is worked up."""
        seed, length = self.options.seed + self.sequences, self.options.operations
        failed: list[Answer] = []
        began = time.monotonic()
        request = {"length": length, "fixed": self.fixed}
        try:
            fuzz = request | {"do": "fuzz", "seed": seed, "count": count}
            said = self.session.ask(fuzz, HANG_S, failed.append)
            self.operations += said["operations"]
            self.unfit += said["unfit"]
            self.counts.update(said["counts"])
        except Ended as ended:  # its tape is drawn again, as far as it goes
            self.ended += 1
            last = max(seed, ended.seed)
            draw = request | {"do": "draw", "seed": last, "seconds": DRAW_S}
            said = self.session.ask(draw, HANG_S)
            failed.append({"failure": ended.failure(said["entries"]), "tape": said["tape"]})
            count = last - seed + 1
        self.seconds += time.monotonic() - began
        self.sequences += count
        for one in failed:
            if "failure" not in one:
                continue
            kind = one["failure"]["kind"]
            if kind in self.kinds:
                self.kinds[kind]["sequences"] += 1
                continue
            self.kinds[kind] = found = described(one["tape"], one["failure"])
            found |= {"sequences": 1, "seconds": round(self.seconds, 1)}
            found |= work_up(self.session, one, Path(self.options.output), _tell)

    def document(self) -> dict[str, Any]:
        opened, engine = self.session.opened, self.session.engine
        return {
            "peer": engine.facts.name,
            "release": engine.release,
            "source": engine.source,
            "seed": self.options.seed,
            "config": self.fixed,
            "sequences": self.sequences,
            "unfit_sequences": self.unfit,
            "operations": self.operations,
            "operations_per_second": round(self.operations / max(self.seconds, 1e-9)),
            "seconds": round(self.seconds, 1),
            "reached": dict(sorted(self.counts.items())),
            "not_reached": [name for name in opened["reaches"] if not self.counts[name]],
            "stubs": opened["stubs"],
            "failures": list(self.kinds.values()),
        }

    def show(self, stream: TextIO) -> None:
        document, name = self.document(), self.session.engine.name
        counted = (f"{document[key]:,} {key.replace('_', ' ')}" for key in COUNTED)
        print(f"{name}: {', '.join(counted)}", file=stream)
        for key, value in document["reached"].items():
            print(f"  {key:<22}{value:>10,}", file=stream)
        for key in document["not_reached"]:
            print(f"  never reached: {key}", file=stream)
        for failure in document["failures"]:
            print("\n".join(told(failure)), file=stream)
        print(end="" if document["failures"] else "Every law held.\n", file=stream)


def _tell(text: str) -> None:
    with ignore_broken_pipe():
        print(text, file=sys.stderr, flush=True)


# -- play


@dataclass(frozen=True, slots=True)
class PlayOptions(OptionRecord):
    sequence: str = option(
        "a tape, or a script, that hicache peers fuzz wrote",
        read.name,
        "SEQUENCE",
        positional=True,
        default="",
    )
    source: str | None = option(SOURCE_HELP, read.name, "DIR")
    script: str | None = option("write the engine's own calls to this script", *read.FILE)
    record: str | None = option(
        "write what the engine answers, so that tests can play the tape without it", *read.FILE
    )
    json: str | None = option("also write the results as JSON; - is stdout", *read.OUTPUT)


def play(options: PlayOptions, command: str) -> int:
    """Returns 0 if the sequence does not fail, or as is known; else 11, as `fuzz` does."""
    path, code = Path(options.sequence), 0
    if path.suffix == ".py":
        return _run_script(options, path)
    check_outputs(
        {"SEQUENCE": str(path)}, json=options.json, script=options.script, record=options.record
    )
    tape = read_tape(path)
    text, failure = dumps(tape), None
    with Session(engine_of(tape.target, options.source)) as session:
        session.start()
        name = session.engine.name
        if options.record:
            lines = session.ask({"do": "record", "tape": text}, PLAY_S)["lines"]
            write_whole(options.record, (f"{line}\n" for line in lines))
        try:
            said = session.ask({"do": "play", "tape": text}, PLAY_S)
        except Ended as ended:
            said = {"failure": ended.failure(len(tape.entries)), "unfit": 0}
        if said["unfit"]:
            raise CallerError(f"{path}: {name} takes no such configuration; play another release")
        if said["failure"]:
            script = Path(options.script) if options.script else None
            failure = explained(session, text, said["failure"], path, script)
            code = 0 if failure["known"] else NEW_FAILURE
    with ignore_broken_pipe():
        lines = told(failure) if failure else [f"{name}: {path} does not fail"]
        print("\n".join(lines), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        document: Answer = {"peer": name, "tape": str(path), "failure": failure}
        write_json(options.json, head(command, complete=True) | document)
    return code


def _run_script(options: PlayOptions, script: Path) -> int:
    """Runs a script, whose first line names its engine, and prints how it fails. Returns 0 if it
    does not, else 11."""
    if options.script or options.record or options.json:
        raise CallerError(f"SEQUENCE: expected a tape, found {script}; play its tape")
    found = re.match('"""([a-z-]+)==', text_of(str(script), "script of hicache peers", 64 << 20))
    if found is None:
        expected = "expected a script of hicache peers, which begins with its engine"
        raise CallerError(f"{script}: {expected}, found another file; name one of --output")
    with Session(engine_of(found[1], options.source)) as session:
        said = script_fails(session, script, PLAY_S)
    with ignore_broken_pipe():
        print(said or f"{session.engine.name}: {script} does not fail")
    return NEW_FAILURE if said else 0


def actions() -> dict[str, Any]:
    texts = "look for bugs in an engine's cache: random operations, every law after each"
    return {
        "fuzz": SimpleNamespace(Options=FuzzOptions, run=fuzz, SUMMARY=texts),
        "play": SimpleNamespace(
            Options=PlayOptions,
            run=play,
            SUMMARY="play a tape on its engine, and explain how it fails",
        ),
    }
