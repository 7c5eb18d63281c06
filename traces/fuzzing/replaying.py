"""Plays one tape for `hicache fuzz --replay`, and prints what it did.

Does not play them (see invariants/fuzz/play).
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.against import SPEC
from invariants.fuzz.device import real
from invariants.fuzz.difference import replay_told
from invariants.fuzz.executors import on_device
from invariants.fuzz.ops import base as operations
from invariants.fuzz.play import Outcome
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape, has_storage
from invariants.watch import Level

from ..outside import entries
from ..terminal.output import write_json
from ..terminal.streams import ignore_broken_pipe
from .work import allowed_s, limit

FORMAT, VERSION = "hicache-fuzz-replay", 1


def replay(
    path: str,
    device: str | None,
    level: Level,
    against: str,
    json: str | None,
    command: str,
) -> int:
    """Plays one tape exactly and prints the result. Returns the exit code.

    device: the device that was asked for. against: what the core
    is compared with.
    """
    tape = tapes.read(Path(path))
    if device:
        tape = moved(tape, device, path)
    with limit(allowed_s(len(tape.entries))):
        ops, compares = operations.load(), against == SPEC
        outcome = replay_told(tape, ops, level, path, compares)
    code = outcome.failure.code if outcome.failure else 0
    stream = sys.stderr if json == "-" else sys.stdout
    with ignore_broken_pipe():
        print(_told(outcome, device), file=stream)
    with ignore_broken_pipe():
        if json:
            write_json(json, _document(outcome, code, command))
    return code


def moved(tape: Tape, device: str, path: str) -> Tape:
    """The tape on this device. Raises CallerError if it cannot run on one, or there is none."""
    unfit = {
        f"{tape.ranks} ranks": tape.ranks > 1,
        "token pairs": tape.pairs,
        "a storage": has_storage(tape),
    }
    if found := next((what for what, there in unfit.items() if there), ""):
        raise CallerError(
            "--device: expected a tape of one rank without token pairs and storage, "
            f"found {found} in {path}; leave the option out"
        )
    real.check(device)
    return replace(tape, executor=on_device(tape.executor, device))


def _told(outcome: Outcome, device: str | None) -> str:
    failure, size = outcome.failure, len(outcome.tape.entries)
    if failure is None:
        where = f" on the {device} device" if device else ""
        return f"{size} entries, {outcome.hand.events} events{where}: no failure"
    text = failure.text.rstrip()
    text += shlex.join(["", *entries.options()]) if entries.given() else ""
    if device:
        text += shlex.join(["", "--device", device])
    return f"{text}\nfailed at entry {failure.at} of {size}: {failure.code} {failure.kind}"


def _document(outcome: Outcome, code: int, command: str) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    failure, hand = outcome.failure, outcome.hand
    found = (
        {"code": code, "kind": failure.kind, "at": failure.at, "text": failure.text}
        if failure
        else None
    )
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "exit_code": code,
        "failure": found,
        "entries": len(outcome.tape.entries),
        "events": hand.events,
        "counts": dict(sorted(hand.counts.items())),
        "probes": dict(sorted(hand.probes.seen.items())),
    }
