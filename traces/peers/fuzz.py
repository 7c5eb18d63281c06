"""`hicache peers fuzz`: draws sequences for an engine, checks each, and keeps what fails.

Does not play them: that is done in the engine's own process (see _session), which this one bounds.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from invariants.peers.tape import loads

from ..reporting.head import head
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_folder, check_outputs, write_json
from ..terminal.rows import option
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe
from . import _shown as shown
from ._folders import environment_of
from ._given import FOLDER_HELP, SOURCE_HELP, configured, setting
from ._known import NEW_FAILURE
from ._session import Answer, Ended, Session
from ._work import Found, work_up

SUMMARY = "look for bugs in an engine's cache: random operations, every law after each"
SECONDS = 60
BATCH = 8  # sequences for which the peer is asked at a time
HANG_S = 60.0  # without a sequence that ends
DRAW_S = 20.0  # to draw a sequence again that ends the process
MOST_KINDS = 40
MOST_ENDED = 20  # times that the process is started again


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    peer: str = option(
        "the peer and its release, such as sglang==0.5.23 (see hicache peers list)",
        read.name,
        "PEER",
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
    seed: int = option(
        "seed of the first sequence; each further one has the next seed",
        read.at_least(0),
        default=0,
    )
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
        "folder for the tape and the script of each failure",
        read.name,
        "DIR",
        short="-o",
        default="peer-failures",
    )
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *read.OUTPUT
    )
    folder: str | None = option(FOLDER_HELP, read.name, "DIR")


@dataclass
class Tally:
    sequences: int = 0
    unfit: int = 0
    operations: int = 0
    seconds: float = 0.0  # of playing, without shrinking and explaining
    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Found] = field(default_factory=dict)
    ended: int = 0
    complete: bool = False


def run(options: Options, command: str) -> int:
    """Returns 0 if every failure is known, else 11."""
    check_outputs({}, json=options.json)
    check_folder(options.output, f"--output {options.output}")
    environment = environment_of(options.peer, options.source, options.folder)
    stream = sys.stderr if options.json == "-" else sys.stdout
    with Session(environment, options.folder, not options.no_own_check) as session:
        session.start()
        fixed = configured(environment.facts.name, options.config, session.opened["takes"])
        with ignore_broken_pipe():
            config = "".join(f" --config {key}={value}" for key, value in fixed.items())
            print(
                f"hicache peers fuzz {environment.name} --seed {options.seed}{config}",
                file=stream,
                flush=True,
            )
        tally = _fuzz(session, options, fixed, _tell)
        code = NEW_FAILURE if any(one.known is None for one in tally.kinds.values()) else 0
        code = code if tally.complete else INTERRUPTED
        document = _document(session, options, tally, fixed)
        with ignore_broken_pipe():
            shown.show(session, document, stream)
        if options.json:
            write_json(options.json, head(command, complete=tally.complete) | document)
    return code


def _tell(text: str) -> None:
    with ignore_broken_pipe():
        print(text, file=sys.stderr, flush=True)


def _fuzz(
    session: Session, options: Options, fixed: dict[str, Any], tell: Callable[[str], None]
) -> Tally:
    """Plays sequences until the time or their number is used up."""
    tally = Tally()
    limit = options.seconds or (None if options.sequences else SECONDS)
    most = options.sequences or 1 << 62
    told = time.monotonic()
    seed = options.seed
    try:
        while tally.sequences < most and (limit is None or tally.seconds < limit):
            count = min(BATCH, most - tally.sequences)
            failed: list[Answer] = []
            began = time.monotonic()
            try:
                done = _ask(session, seed, count, options, fixed, failed.append)
                tally.operations += done["operations"]
                tally.unfit += done["unfit"]
                tally.counts.update(done["counts"])
            except Ended as ended:
                count = _ended(tally, session, options, fixed, ended, seed, failed)
            tally.seconds += time.monotonic() - began
            tally.sequences += count
            seed += count
            for one in failed:
                _note(tally, session, one, Path(options.output), tell)
            if options.first and any(one.known is None for one in tally.kinds.values()):
                break
            if len(tally.kinds) >= MOST_KINDS or tally.ended >= MOST_ENDED:
                tell("too many kinds of failures; no more are looked for")
                break
            if time.monotonic() - told > 10:
                told = time.monotonic()
                tell(
                    f"{tally.sequences} sequences, {tally.operations} operations, "
                    f"{len(tally.kinds)} kinds of failures"
                )
        tally.complete = True
    except KeyboardInterrupt:
        pass
    return tally


def _ask(
    session: Session,
    seed: int,
    count: int,
    options: Options,
    fixed: dict[str, Any],
    note: Callable[[Answer], None],
) -> Answer:
    def on(answer: Answer) -> None:
        if "failure" in answer:
            note(answer)

    request = {"do": "fuzz", "seed": seed, "count": count, "length": options.operations}
    return session.ask(request | {"fixed": fixed}, HANG_S, on)


def _ended(
    tally: Tally,
    session: Session,
    options: Options,
    fixed: dict[str, Any],
    ended: Ended,
    first: int,
    failed: list[Answer],
) -> int:
    """The process ended in a sequence: that is a failure, and its tape is drawn again as far as it
    goes. Returns how many sequences were begun."""
    tally.ended += 1
    seed = max(first, ended.seed)
    request = {"do": "draw", "seed": seed, "length": options.operations, "fixed": fixed}
    said = session.ask(request | {"seconds": DRAW_S}, HANG_S)
    failed.append({"failure": ended.failure(said["entries"]), "tape": said["tape"]})
    return seed - first + 1


def _note(
    tally: Tally, session: Session, one: Answer, folder: Path, tell: Callable[[str], None]
) -> None:
    """Counts a failure; the first of each kind is worked up."""
    kind = one["failure"]["kind"]
    if kind in tally.kinds:
        tally.kinds[kind].count += 1
        return
    seed = loads(one["tape"]).seed
    tally.kinds[kind] = found = Found(one["failure"], one["tape"], seed, tally.seconds)
    work_up(session, found, folder, tell)


def _document(
    session: Session, options: Options, tally: Tally, fixed: dict[str, Any]
) -> dict[str, Any]:
    reaches = session.opened["reaches"]
    return {
        "peer": session.environment.facts.name,
        "release": session.environment.release,
        "source": options.source,
        "seed": options.seed,
        "config": fixed,
        "sequences": tally.sequences,
        "unfit_sequences": tally.unfit,
        "operations": tally.operations,
        "operations_per_second": round(tally.operations / tally.seconds) if tally.seconds else 0,
        "seconds": round(tally.seconds, 1),
        "reached": dict(sorted(tally.counts.items())),
        "not_reached": [name for name in reaches if not tally.counts[name]],
        "stubs": session.opened["stubs"],
        "failures": [one.document() for one in tally.kinds.values()],
    }
