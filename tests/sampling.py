"""A part of many cases, drawn from the commit, so that other commits try other parts.

A test marked `one_in(n)` is slow: each commit runs one in n of its cases. `sample` draws a number
of cases. A test runs, too, if it is named on the command line, or if its file is about what is
changed and not committed. `--all` (`make check-all`) runs every case. HICACHE_SAMPLE=NUMBER draws
the part of another commit; a run that fails says its number.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import TypeVar

SAMPLE, ALL = "HICACHE_SAMPLE", "all"
Case = TypeVar("Case")


def of_this_commit() -> str:
    """A number for the commit that is checked out; 0 where git does not say."""
    return str(int(_git("rev-parse", "--short=8", "HEAD").strip() or "0", 16))


def changed() -> list[str]:
    """The Python files that are changed and not committed, from the root of the project."""
    told = _git("status", "--porcelain", "--untracked-files=all", "--", "*.py")
    return [line[3:].split(" -> ")[-1] for line in told.splitlines()]


def is_about(test: str, text: str, files: Iterable[str]) -> bool:
    """Whether a file of tests is one of these files, has the name of one or of its folder in its
    own path, or names the package of one. test: its path. text: what is in it."""
    for file in files:
        *folders, name = file.removesuffix(".py").split("/")
        module = ".".join(folders if len(folders) > 1 else [*folders, name])
        if file == test or _has_word(module, text):
            return True
        if any(_has_word(word, test) for word in {name, *folders[-1:]} - {"tests"}):
            return True
    return False


def _has_word(word: str, text: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", text) is not None


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """So many of the cases, in their order; all of them with `--all`."""
    every = list(cases)
    chosen = os.environ.get(SAMPLE, "0")
    if chosen == ALL or count >= len(every):
        return every
    places = Random(f"{chosen} {len(every)}").sample(range(len(every)), count)
    return [every[place] for place in sorted(places)]


def is_drawn(name: str, one_in: int) -> bool:
    """Whether this commit runs the case of this name, as one in so many commits do."""
    chosen = os.environ.get(SAMPLE, "0")
    return chosen == ALL or Random(f"{chosen} {name}").random() * one_in < 1
