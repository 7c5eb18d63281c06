"""`hicache peers play`: plays one tape on its engine, and explains how it fails; or runs a script
that was written for one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.peers.tape import dumps, read

from ..results.record import head
from ..terminal import options as given
from ..terminal.asked import Answer, Ended
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.streams import ignore_broken_pipe
from ._failures import NEW_FAILURE, explained, told
from ._session import SOURCE_HELP, Session, engine_of, script_fails

SUMMARY = "play a tape on its engine, and explain how it fails"
PLAY_S = 120.0


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    sequence: str = option(
        "a tape, or a script, that hicache peers fuzz wrote",
        given.name,
        "SEQUENCE",
        positional=True,
        default="",
    )
    source: str | None = option(SOURCE_HELP, given.name, "DIR")
    script: str | None = option("write the engine's own calls to this script", *given.FILE)
    record: str | None = option(
        "write what the engine answers, so that tests can play the tape without it", *given.FILE
    )
    json: str | None = option("also write the results as JSON; - is stdout", *given.OUTPUT)


def run(options: Options, command: str) -> int:
    """Returns 0 if the sequence does not fail, or as is known; else 11, as `fuzz` does."""
    path, code = Path(options.sequence), 0
    if path.suffix == ".py":
        return _run(options, path)
    check_outputs(
        {"SEQUENCE": str(path)}, json=options.json, script=options.script, record=options.record
    )
    tape = read(path)
    text, failure = dumps(tape), None
    with Session(engine_of(tape.peer, options.source)) as session:
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


def _run(options: Options, script: Path) -> int:
    """Runs a script, whose first line names its engine, and prints how it fails. Returns 0 if it
    does not, else 11."""
    if options.script or options.record or options.json:
        raise CallerError(f"SEQUENCE: expected a tape, found {script}; play its tape")
    try:
        name = script.read_text("utf-8").removeprefix('"""').partition("==")[0]
    except (OSError, ValueError) as error:
        raise CallerError(f"SEQUENCE: expected a script in {script}, found: {error}") from None
    with Session(engine_of(name, options.source)) as session:
        said = script_fails(session, script, PLAY_S)
    with ignore_broken_pipe():
        print(said or f"{session.engine.name}: {script} does not fail")
    return NEW_FAILURE if said else 0
