"""Tapes of peers: a configuration of one peer, and the entries of a sequence.

    line 1      {"tape": "hicache-peer", "version": 1, "peer": "sglang", "release": "0.5.23", ...}
    then        entries, as in every tape (invariants/fuzz/hicache/tape.py)

A tape plays on any release of its peer, and on another peer as far as that has its operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import ANY, TEXT, Named, Only, Spare, fit, show, text_of, whole
from invariants.fuzz.hicache.tape import MOST_BYTES, Entry, read_lines, written_lines
from invariants.fuzz.schedules import schedule_of
from invariants.fuzz.target import Config

FORMAT, VERSION = "hicache-peer", 1
_WANTED = "expected a tape of hicache peers"
_AGAIN = "record the tape again"
_HEAD = Only(
    {
        "tape": TEXT,
        "version": whole(VERSION, VERSION),
        "peer": TEXT,
        "release": TEXT,
        "seed": Spare(whole(0, (1 << 64) - 1)),
        "order": TEXT,
        "notes": Spare(Named(TEXT)),
        "config": Named(ANY),
    }
)


@dataclass(frozen=True)
class PeerTape:
    """peer, release: that it was recorded from. config: of that peer. The others: see Tape."""

    peer: str
    release: str
    config: Config
    entries: tuple[Entry, ...]
    seed: int = 0
    order: str = "time"
    notes: dict[str, str] = field(default_factory=dict)


def dumps(tape: PeerTape) -> str:
    head: dict[str, Any] = {
        "tape": FORMAT,
        "version": VERSION,
        "peer": tape.peer,
        "release": tape.release,
        "seed": tape.seed,
        "order": tape.order,
        "notes": tape.notes,
        "config": tape.config,
    }
    return written_lines(head, tape.entries)


def loads(text: str, name: str = "tape") -> PeerTape:
    """Parses a tape. Raises CallerError with one line if it is not a complete tape of a peer."""
    head, entries = read_lines(text, name, _WANTED, lambda head: _check(head, name))
    given = fit(head, _HEAD, name, _AGAIN)
    try:
        schedule_of(given["order"])
    except CallerError as error:
        raise CallerError(f"{name}: {error}; {_AGAIN}") from error
    del given["tape"], given["version"]
    return PeerTape(entries=entries, **given)


def _check(head: dict[str, Any], name: str) -> None:
    if head.get("tape") != FORMAT:
        found = show(head["tape"]) if "tape" in head else 'no field "tape"'
        raise CallerError(
            f"{name}: {_WANTED}, found {found}; name a tape that `hicache peers fuzz` wrote"
        )


def read(path: Path) -> PeerTape:
    """Reads a tape. Raises CallerError with one line."""
    return loads(text_of(str(path), "tape of hicache peers", MOST_BYTES, "copy it anew"), str(path))
