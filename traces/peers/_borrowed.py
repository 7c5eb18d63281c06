"""What a peer's process may import: our packages, its own, and what it borrows of this Python.

A peer runs with `python -S`, so nothing can be imported but the standard library and what is in the
folders that `child_path` names. Torch is gigabytes, so it is borrowed, as are numpy, what hicache
requires, and what these require; nothing else of the user's Python is seen. Borrowed are symbolic
links, in folders that are named by what they link to, and kept.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from hicache.core.errors import CallerError

from . import _folders as folders
from ._folders import NEEDS, SITE, Environment

TORCH = "torch"
_OURS = ("hicache", "invariants", "sim")
_ROOTS = ("hicache", "numpy")
_LINKS = "links"  # beside the environments
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NO_MODULE = {"..", "__pycache__", "bin"}


def child_path(environment: Environment, folder: str | None = None) -> list[str]:
    """The folders for PYTHONPATH of a peer's process, which runs with `python -S -P`. folder: of
    all environments. Raises CallerError if what is borrowed is not installed."""
    links = folders.cache_folder(folder) / _LINKS
    ours = Path(__file__).parent.parent.parent
    places = {name: ours / name for name in _OURS}
    if environment.folder is None and environment.source is not None:
        package = folders.package_of(environment.source, environment.facts)
        places[package.name] = package
    path = [linked(links, places)]
    if environment.folder is None:
        return [*map(str, path), str(linked(links, borrowed(_ROOTS)))]
    path.append(environment.folder / NEEDS)
    if environment.source is None:
        path.append(environment.folder / SITE)
    else:
        package = folders.package_of(environment.source, environment.facts)
        path.append(linked(links, {package.name: package}))
    path.append(linked(links, borrowed((TORCH, *_ROOTS))))
    return list(map(str, path))


def check_torch() -> str:
    """The version of torch. Raises CallerError if it is not installed."""
    try:
        return metadata.version(TORCH)
    except metadata.PackageNotFoundError:
        raise CallerError(
            "peers: expected torch, which engines import, and it is not installed; "
            "pip install 'hicache[torch]'"
        ) from None


def borrowed(roots: Iterable[str]) -> dict[str, Path]:
    """Top-level names of the roots and of all that they require, with the place of each."""
    found: dict[str, Path] = {}
    for distribution in required(roots):
        ours = distribution.metadata["Name"] == "hicache"  # a checkout also has its tests
        for name in _top_level(distribution):
            place = Path(str(distribution.locate_file(name)))
            if ours and not name.endswith("-info"):
                continue
            if name not in _OURS and place.exists():
                found.setdefault(name, place)
    return found


def required(roots: Iterable[str]) -> list[metadata.Distribution]:
    """The distributions, and those that they require here, each once. Without those of extras; one
    that is not installed is not required on this machine."""
    waiting, seen = list(roots), set[str]()
    found = []
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name == TORCH:
                check_torch()
            continue
        found.append(distribution)
        waiting += _requirements(distribution)
    return found


def linked(links: Path, places: Mapping[str, Path]) -> Path:
    """A folder with a link to each place, by name. It is made if it is not there.

    Raises CallerError if it cannot be made."""
    told = "\n".join(f"{name} {place}" for name, place in sorted(places.items()))
    folder = links / sha256(os.fsencode(told)).hexdigest()[:16]
    if folder.is_dir():
        return folder
    try:
        links.mkdir(parents=True, exist_ok=True)
        _remove_dead(links)
        draft = Path(tempfile.mkdtemp(dir=links, prefix="new-"))
        try:
            for name, place in places.items():
                (draft / name).symlink_to(place)
            with suppress(OSError):  # somebody else made it meanwhile
                os.replace(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise CallerError(
            f"{links}: expected a folder that can be written, found: {error.strerror or error}; "
            "name another with --folder"
        ) from None
    return folder


def _remove_dead(links: Path) -> None:
    """Removes folders that link to what is gone."""
    for folder in links.iterdir():
        if not folder.name.startswith("new-") and not all(one.exists() for one in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


def _requirements(distribution: metadata.Distribution) -> Iterator[str]:
    """Names of what it requires without extras. Other conditions do not count: where they do not
    hold, it is not installed."""
    for text in distribution.requires or ():
        what, _, condition = text.partition(";")
        name = _NAME.match(what.strip())
        if name and "extra" not in condition:
            yield name[0]


def _top_level(distribution: metadata.Distribution) -> set[str]:
    """Names right in the folder where it is installed: packages, modules, and its metadata."""
    names = {file.parts[0] for file in distribution.files or ()}
    if not names:
        names = set((distribution.read_text("top_level.txt") or "").split())
    unlinked = {name for name in names if name.startswith("__editable__") or name.endswith(".pth")}
    return names - unlinked - _NO_MODULE
