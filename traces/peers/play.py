"""`hicache peers play`: plays one tape on an engine, and explains how it fails; or runs a script
that was written for one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.peers.tape import PeerTape, dumps, read

from ..reporting.head import head
from ..terminal import options as given
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console
from . import _shown as shown
from ._folders import environment_of, spelled
from ._given import FOLDER_HELP, SOURCE_HELP
from ._known import NEW_FAILURE
from ._session import Answer, Ended, Session, script_fails
from ._work import Found, explain, write_script

SUMMARY = "play a tape on an engine, and explain how it fails"
PLAY_S = 120.0


class CannotOpen(CallerError):
    """The peer does not take the configuration of a tape."""


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    tape: str = option(
        "a tape, or a script, that hicache peers fuzz wrote",
        given.name,
        "TAPE",
        positional=True,
        default="",
    )
    peer: str | None = option(
        "play it on this peer and release instead of its own, such as sglang==0.5.22",
        given.name,
        "PEER",
    )
    script: str | None = option(
        "write the engine's own calls to this file, as a script", given.name, "FILE"
    )
    record: str | None = option(
        "write what the engine answers to this file, so that tests can play the tape without it",
        given.name,
        "FILE",
    )
    source: str | None = option(SOURCE_HELP, given.name, "DIR")
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *given.OUTPUT
    )
    folder: str | None = option(FOLDER_HELP, given.name, "DIR")


def run(options: Options, command: str) -> int:
    """Returns 0 if the tape does not fail, or as is known; else 11, as `fuzz` does."""
    if options.tape.endswith(".py"):
        return _run(options)
    check_outputs(
        {"tape": options.tape}, json=options.json, script=options.script, record=options.record
    )
    tape = read(Path(options.tape))
    name = options.peer or spelled(tape.peer, tape.release)
    environment = environment_of(name, options.source, options.folder)
    stream = sys.stderr if options.json == "-" else sys.stdout
    with Session(environment, options.folder) as session:
        session.start()
        text = fitted(session, tape)
        if options.record:
            lines = session.ask({"do": "record", "tape": text}, PLAY_S)["lines"]
            write_whole(options.record, (f"{line}\n" for line in lines))
        failure = failure_of(session, text, len(tape.entries))
        code = 0
        document: Answer = {"peer": environment.name, "tape": options.tape, "failure": None}
        out = console(stream, piped=100)
        with ignore_broken_pipe():
            if failure is None:
                out.print(f"{environment.name}: {options.tape} does not fail", soft_wrap=True)
        if failure is not None:
            found = Found(failure, text, tape.seed, 0.0, files=[options.tape])
            explain(session, found)
            if options.script:
                write_script(session, found, Path(options.script))
            document["failure"] = found.document()
            code = NEW_FAILURE if found.known is None else 0
            with ignore_broken_pipe():
                for line in shown.told(found.document()):
                    out.print(line, soft_wrap=True)
    if options.json:
        write_json(options.json, head(command, complete=True) | document)
    return code


def _run(options: Options) -> int:
    """Runs a script, and prints how it fails. Returns 0 if it does not, else 11."""
    for name in ("script", "record", "json"):
        if getattr(options, name) is not None:
            raise CallerError(f"--{name}: expected a tape, found {options.tape}; play its tape")
    if options.peer is None:
        raise CallerError(
            "--peer: expected the peer that the script was written for, such as sglang==0.5.23, "
            "found none"
        )
    script = Path(options.tape)
    if not script.is_file():
        raise CallerError(f"TAPE: expected a script, found none in {script}; copy it anew")
    environment = environment_of(options.peer, options.source, options.folder)
    with Session(environment, options.folder) as session:
        said = script_fails(session, script, PLAY_S)
    with ignore_broken_pipe():
        print(said or f"{environment.name}: {script} does not fail")
    return NEW_FAILURE if said else 0


def fitted(session: Session, tape: PeerTape) -> str:
    """The tape for this peer: as it is, or with a configuration as like its own as the peer takes
    if it is of another."""
    facts = session.environment.facts
    if tape.peer == facts.name:
        return dumps(tape)
    return str(session.ask({"do": "adopt", "tape": dumps(tape)}, PLAY_S)["tape"])


def failure_of(session: Session, tape: str, entries: int) -> Answer | None:
    """How a tape fails on a peer, or None. Raises CallerError if it cannot be played."""
    try:
        said = session.ask({"do": "play", "tape": tape}, PLAY_S)
    except Ended as ended:
        return ended.failure(entries)
    if said["unfit"]:
        raise CannotOpen(
            f"{session.environment.name}: expected a configuration that it can be opened with, "
            "found that of the tape; play it on another release"
        )
    failure: Answer | None = said["failure"]
    return failure
