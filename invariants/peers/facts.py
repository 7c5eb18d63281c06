"""What a peer's file says of itself: the constants at its head, read without importing it.

Lives here: the constants by release. Importing the file imports its engine, which the command line
has not got, and which the peer's own process may only import after the stubs are in place.

    DISTRIBUTION    name of the engine on the package index; "" for a peer that needs none
    RELEASES        the releases that the peer knows, oldest first
    PACKAGE         name of the package that is imported, where it is not that of the distribution
    LIKE            another peer of the same engine: it says everything else, and its environment is
                    used
    NEEDS           pinned requirements that are installed beside the wheel
    STUBS, BARE     modules that are replaced, packages whose __init__ is not run; see stubs
    UNUSED          files of the wheel that a CPU never loads, as patterns, which are left out

NEEDS, STUBS, BARE and UNUSED are tuples of texts, or, where releases differ, an object with such a
tuple for each range of releases: "0.5.19", "0.5.19..0.5.22", "..0.5.22", "0.5.23..".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ENGINES = Path(__file__).parent / "engines"
_OF_RELEASE = ("NEEDS", "STUBS", "BARE", "UNUSED")
_READ = {"DISTRIBUTION", "RELEASES", "PACKAGE", "LIKE", *_OF_RELEASE}


class Misstated(ValueError):
    """A peer's file does not say what it must; the text is for its author."""


@dataclass(frozen=True, slots=True)
class Facts:
    """name: of the peer. home: the peer whose environment it uses. constants: those of the file
    that have a literal value."""

    name: str
    home: str
    distribution: str
    package: str
    releases: tuple[str, ...]
    constants: Mapping[str, Any]

    def needs(self, release: str) -> tuple[str, ...]:
        return self._of(release, "NEEDS")

    def stubs(self, release: str) -> tuple[str, ...]:
        return self._of(release, "STUBS")

    def bare(self, release: str) -> tuple[str, ...]:
        return self._of(release, "BARE")

    def is_unused(self, release: str, file: str) -> bool:
        return any(fnmatch(file, pattern) for pattern in self._of(release, "UNUSED"))

    def _of(self, release: str, constant: str) -> tuple[str, ...]:
        said = self.constants.get(constant, ())
        if not isinstance(said, dict):
            return tuple(said)
        return tuple(
            one
            for spelled, values in said.items()
            if release in self._range(constant, spelled)
            for one in values
        )

    def _range(self, constant: str, spelled: str) -> tuple[str, ...]:
        first, dots, last = spelled.partition("..")
        ends = (first or self.releases[0], (last or self.releases[-1]) if dots else first)
        if not set(ends) <= set(self.releases):
            raise Misstated(f"{self.name}: {constant} has {spelled!r}, which RELEASES has not")
        return self.releases[self.releases.index(ends[0]) : self.releases.index(ends[1]) + 1]

    def check(self) -> None:
        """Raises Misstated unless every constant can be read for every release."""
        for constant in _OF_RELEASE:
            said = self.constants.get(constant, ())
            lists = list(said.values()) if isinstance(said, dict) else [said]
            for values in lists:
                if not isinstance(values, tuple | list) or not all(
                    isinstance(one, str) for one in values
                ):
                    raise Misstated(f"{self.name}: {constant} is no tuple of texts")
            for spelled in said if isinstance(said, dict) else ():
                self._range(constant, spelled)
        for need in (need for release in self.releases for need in self.needs(release)):
            if "==" not in need:
                raise Misstated(f"{self.name}: NEEDS has {need!r}, which names no exact version")


def read(file: Path) -> Facts:
    """The facts of one peer. Raises Misstated."""
    name = file.stem.replace("_", "-")
    constants = dict(_constants(name, ast.parse(file.read_text(encoding="utf-8"))))
    home = name
    if "LIKE" in constants:
        like = read(file.with_name(f"{constants['LIKE']}.py"))
        home, constants = like.home, {**like.constants, **constants}
    distribution, releases = constants.get("DISTRIBUTION"), constants.get("RELEASES", ())
    if not isinstance(distribution, str):
        raise Misstated(f"{name}: DISTRIBUTION is no text")
    if not isinstance(releases, tuple) or not releases:
        raise Misstated(f"{name}: RELEASES is no tuple of texts")
    package = constants.get("PACKAGE", distribution.replace("-", "_"))
    facts = Facts(name, home, distribution, package, tuple(releases), constants)
    facts.check()
    return facts


def known() -> dict[str, Path]:
    """The file of each peer by its name, sorted."""
    files = sorted(ENGINES.glob("*.py"))
    return {one.stem.replace("_", "-"): one for one in files if one.stem[0] != "_"}


def _constants(name: str, tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign):
            targets, value = [node.target], node.value
        for target in targets:
            if isinstance(target, ast.Name) and target.id in _READ and value is not None:
                try:
                    yield target.id, ast.literal_eval(value)
                except ValueError:
                    raise Misstated(f"{name}: {target.id} is no literal value") from None
