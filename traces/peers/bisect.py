"""`hicache peers bisect`: finds the first release in which a tape fails differently."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from invariants.peers.tape import PeerTape, read

from ..reporting.head import head
from ..terminal import options as given
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, table
from . import _fetching as fetching
from . import _folders as folders
from ._borrowed import check_torch
from ._folders import environment_of, facts_of, spelled
from ._given import FOLDER_HELP
from ._session import Session
from .fetch import tell
from .play import CannotOpen, failure_of, fitted

SUMMARY = "find the release that brought or mended a failure, by its tape"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    tape: str = option(
        "a tape that hicache peers fuzz wrote", given.name, "TAPE", positional=True, default=""
    )
    peer: str = option("the peer, such as sglang", given.name, "PEER", positional=True, default="")
    releases: str = option(
        "its releases, from the first to the last of a range, such as 0.5.19..0.5.23",
        given.name,
        "FIRST..LAST",
        positional=True,
        default="",
    )
    every: bool = option("play it on each release of the range, not only on halves", default=False)
    fetch: bool = option("make the environments that are missing", default=False)
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *given.OUTPUT
    )
    folder: str | None = option(FOLDER_HELP, given.name, "DIR")


def run(options: Options, command: str) -> int:
    check_outputs({"tape": options.tape}, json=options.json)
    tape = read(Path(options.tape))
    releases = within(options.peer, options.releases)
    if not options.fetch and options.every:
        for release in releases:
            environment_of(spelled(options.peer, release), None, options.folder)
    stream = sys.stderr if options.json == "-" else sys.stdout
    kinds: dict[str, str] = {}

    def kind(release: str) -> str:
        if release not in kinds:
            kinds[release] = _kind(options, tape, release)
            with ignore_broken_pipe():
                said = kinds[release] or "does not fail"
                print(f"{spelled(options.peer, release)}: {said}", file=sys.stderr, flush=True)
        return kinds[release]

    if options.every:
        for release in releases:
            kind(release)
    else:
        _halve(releases, kind)
    found = changes(releases, kinds)
    with ignore_broken_pipe():
        _show(options, releases, kinds, found, stream)
    if options.json:
        document = {
            "peer": options.peer,
            "tape": options.tape,
            "failures": {one: kinds[one] for one in releases if one in kinds},
            "changes": found,
        }
        write_json(options.json, head(command, complete=True) | document)
    return 0


def within(peer: str, text: str) -> list[str]:
    """The releases of a range. Raises CallerError."""
    known = facts_of(peer).releases
    first, dots, last = text.partition("..")
    for one in (first, last):
        if one not in known or not dots:
            raise CallerError(
                f"releases: expected FIRST..LAST of {', '.join(known) or 'none'}, found {text!r}"
            )
    found = list(known[known.index(first) : known.index(last) + 1])
    if not found:
        raise CallerError(f"releases: expected the older release first, found {text!r}")
    return found


def _halve(releases: list[str], kind: Any) -> None:
    """Plays the ends, and the middle of a range whose ends differ, until neighbours differ."""
    first, last = 0, len(releases) - 1
    while kind(releases[first]) != kind(releases[last]) and last - first > 1:
        middle = (first + last) // 2
        if kind(releases[middle]) == kind(releases[first]):
            first = middle
        else:
            last = middle


def changes(releases: list[str], kinds: dict[str, str]) -> list[dict[str, str]]:
    """Neighbours of the range, both of them played, that fail differently."""
    return [
        {"before": one, "after": other, "was": kinds[one], "is": kinds[other]}
        for one, other in pairwise(releases)
        if one in kinds and other in kinds and kinds[one] != kinds[other]
    ]


def _kind(options: Options, tape: PeerTape, release: str) -> str:
    """How the tape fails on a release; empty if it does not."""
    name = spelled(options.peer, release)
    if options.fetch:
        _fetch(name, options.folder)
    environment = environment_of(name, None, options.folder)
    with Session(environment, options.folder) as session:
        session.start()
        try:
            failure = failure_of(session, fitted(session, tape), len(tape.entries))
        except CannotOpen:
            return "cannot be opened so"
    return "" if failure is None else str(failure["kind"])


def _fetch(name: str, folder: str | None) -> None:
    found, release = folders.chosen(name)
    cache = folders.cache_folder(folder)
    if found.distribution and folders.why_unusable(
        folders.folder_of(cache, found.home, release, None), found, release
    ):
        check_torch()
        fetching.fetch(cache, found, release, None, partial(tell, name))


def _show(
    options: Options,
    releases: list[str],
    kinds: dict[str, str],
    found: list[dict[str, str]],
    stream: Any,
) -> None:
    out = console(stream, piped=100)
    rows = table(f"{options.tape} on {options.peer}", "release", "fails with")
    rows.columns[1].justify = "left"
    for release in releases:
        if release in kinds:
            rows.add_row(release, kinds[release] or "-")
    out.print(rows)
    for one in found:
        was, now = one["was"] or "no failure", one["is"] or "no failure"
        text = f"{one['before']} has {was}, and {one['after']} has {now}."
        out.print(text, soft_wrap=True)
    if not found:
        out.print("All releases that were played behave alike.")
