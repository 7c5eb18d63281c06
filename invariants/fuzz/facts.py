"""What the file of an engine says of itself: the constants at its head, read without importing it.

Importing the file imports its engine, which only the engine's own process may do, after the stubs
are in place. The constants are listed in `targets/__init__.py`. And which failures of it are known:
`known/ENGINE.json` has a row for each.

    report        where it was reported, or what it is; text: one sentence
    law, kind     the law, and what the failure's kind begins with behind it; empty and without
                  functions it is the law alone
    functions     that must run in the shrunk sequence, as file:function; a file may be its end
    first, last   the releases that have it; last is null while it is not mended
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENGINES = Path(__file__).parent / "targets"


@dataclass(frozen=True, slots=True)
class Facts:
    name: str
    distribution: str
    package: str
    releases: tuple[str, ...]
    needs: tuple[str, ...]
    stubs: tuple[str, ...]
    bare: tuple[str, ...]


def read(file: Path) -> Facts:
    """The facts of one engine. Raises KeyError or ValueError if the file does not say them."""
    said = _constants(file)
    distribution = said["DISTRIBUTION"]
    return Facts(
        file.stem.replace("_", "-"),
        distribution,
        said.get("PACKAGE", distribution.replace("-", "_")),
        said["RELEASES"],
        said.get("NEEDS", ()),
        said.get("STUBS", ()),
        said.get("BARE", ()),
    )


def engines() -> dict[str, Path]:
    """The file of each engine by its name, sorted."""
    files = sorted(ENGINES.glob("*.py"))
    return {one.stem.replace("_", "-"): one for one in files if one.stem[0] != "_"}


def known(engine: str) -> list[dict[str, Any]]:
    """The known failures of an engine."""
    path = ENGINES.parent / "known" / f"{engine.replace('-', '_')}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return rows


def match(
    rows: Sequence[dict[str, Any]],
    releases: Sequence[str],
    release: str,
    failure: dict[str, Any],
    where: Sequence[Sequence[str]],
) -> dict[str, Any] | None:
    """The row that a failure is, or None. A release that is not known counts as the newest. where:
    file and name of each function that ran."""

    def ran(name: str) -> bool:
        file, _, function = name.rpartition(":")
        return any(path.endswith(file) and one == function for path, one in where)

    at = releases.index(release if release in releases else releases[-1])
    for row in rows:
        kind = failure["kind"][len(row["law"]) :].strip()
        fits = kind.startswith(row["kind"]) if row["kind"] or row["functions"] else not kind
        has = releases.index(row["first"]) <= at <= releases.index(row["last"] or releases[-1])
        if row["law"] == failure["code"] and fits and has and all(map(ran, row["functions"])):
            return row
    return None


def _constants(file: Path) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                said[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue  # not a literal, so none of those that are read
    if "LIKE" in said:
        return _constants(file.with_name(f"{said['LIKE']}.py")) | said
    return said
