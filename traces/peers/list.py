"""`hicache peers list`: which environments are there, which peers there are, and their releases."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from invariants.peers import facts
from invariants.peers.facts import Facts

from ..reporting.head import head
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, table
from . import _folders as folders
from ._folders import Made, spelled
from ._given import FOLDER_HELP

SUMMARY = "list the engines that are there, and those that can be fetched"
_BORROWED = ("torch", "numpy")


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    folder: str | None = option(
        FOLDER_HELP,
        read.name,
        "DIR",
    )
    json: str | None = option(
        "also write the list to this file as JSON; - is stdout", read.output, "FILE"
    )


def run(options: Options, command: str) -> int:
    check_outputs({}, json=options.json)
    found = listed(folders.cache_folder(options.folder))
    with ignore_broken_pipe():
        out = console(sys.stderr if options.json == "-" else sys.stdout)
        for one in _shown(found):
            out.print(one, soft_wrap=isinstance(one, str))
    if options.json:
        write_json(options.json, head(command, complete=True) | found)
    return 0


def listed(cache: Path) -> dict[str, Any]:
    """Every environment with its state, its record and the peers that run in it, every peer with
    its releases, and what is borrowed of this Python."""
    peers = [facts.read(file) for file in facts.known().values()]
    there = []
    for folder, made in folders.environments(cache):
        wrong, runs = "not whole", list[Facts]()
        if made is not None:
            wrong = "of a peer or release that is not known any more"
            runs = [one for one in peers if one.home == made.peer and made.release in one.releases]
            if runs:
                wrong = folders.why_unusable(folder, runs[0], made.release)
        there.append(
            {
                "folder": str(folder),
                "wrong": wrong,
                "peers": [one.name for one in runs],
                "record": None if made is None else asdict(made),
            }
        )
    return {
        "folder": str(cache),
        "environments": there,
        "peers": [
            {"peer": one.name, "distribution": one.distribution, "releases": list(one.releases)}
            for one in peers
        ],
        "borrowed": {name: _version(name) for name in _BORROWED},
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _shown(found: Mapping[str, Any]) -> list[Any]:
    shown: list[Any] = []
    if found["environments"]:
        there = table("Environments", "peer", "Python", "MB", "fetched", "state")
        there.columns[0].no_wrap = True
        there.columns[-1].justify = "left"
        for one in found["environments"]:
            there.add_row(*_row(one))
        shown.append(there)
        shown.append(f"in {found['folder']}")
    else:
        shown.append(f"No environment is in {found['folder']}.")
    known = table("Peers", "peer", "distribution", "releases that are known")
    for column in (1, 2):
        known.columns[column].justify = "left"
    for one in found["peers"]:
        known.add_row(one["peer"], one["distribution"] or "needs none", ", ".join(one["releases"]))
    shown.append(known)
    named = (f"{name} {version or '(missing)'}" for name, version in found["borrowed"].items())
    shown.append(f"Borrowed of this Python: {', '.join(named)}.")
    return shown


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    if one["record"] is None:
        return Path(one["folder"]).name, "?", "?", "?", f"{one['wrong']}; fetch it again"
    made = Made(**one["record"])
    others = "" if made.peer in one["peers"] else f" for {', '.join(one['peers'])}"
    state = one["wrong"] or f"ready{others}"
    if made.source is not None:
        state += f", runs {made.source}"
    name = spelled(made.peer, made.release)
    return name, made.python, f"{made.bytes / 1e6:,.0f}", made.made, state
