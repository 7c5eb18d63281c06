"""`hicache peers fetch`: makes the environments in which peers run, under the user's cache folder.

A step is told as a line on standard error, and every few seconds while it lasts.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..terminal.options import OptionRecord, name
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from . import _fetching as fetching
from . import _folders as folders
from ._borrowed import check_torch
from ._folders import Made, spelled
from ._given import FOLDER_HELP

SUMMARY = "make the environment of an engine's release: its wheel, and what that needs"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """source: the folder of a repository."""

    peers: tuple[str, ...] = option(
        "peers and their releases, such as sglang==0.5.23; the newest that is known where none is "
        "named (see hicache peers list)",
        name,
        "PEER",
        positional=True,
        nargs="+",
        default=(),
    )
    source: str | None = option(
        "run this checkout of the engine instead of the release's wheel; the release says what it "
        "needs",
        name,
        "DIR",
    )
    again: bool = option("make it again, even if it is there", default=False)
    folder: str | None = option(
        FOLDER_HELP,
        name,
        "DIR",
    )


def run(options: Options, command: str) -> int:
    asked = [folders.chosen(peer) for peer in options.peers]
    cache = folders.cache_folder(options.folder)
    source = None if options.source is None else Path(options.source).resolve()
    for facts, release in asked:
        peer = spelled(facts.name, release)
        if not facts.distribution:
            _say(f"{peer}: needs no environment")
            continue
        check_torch()
        where = folders.folder_of(cache, facts.home, release, source)
        if not options.again and not folders.why_unusable(where, facts, release):
            _say(f"{peer}: is there already, in {where}")
            continue
        made = fetching.fetch(cache, facts, release, source, partial(tell, peer))
        _say(f"{peer}: {_told(made)}, in {where}")
    return 0


def _told(made: Made) -> str:
    more = f" ({made.left_out_bytes / 1e6:,.0f} MB left out)" if made.left_out_bytes else ""
    return f"{made.bytes / 1e6:,.0f} MB{more} in {made.seconds} s"


def _say(text: str) -> None:
    with ignore_broken_pipe():
        print(text, flush=True)


def tell(peer: str, step: str) -> None:
    with ignore_broken_pipe():
        print(f"{peer}: {step}", file=sys.stderr, flush=True)
