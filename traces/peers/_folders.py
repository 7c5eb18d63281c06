"""Where the environments of peers are, and which there are: one folder for each release.

Lives here: their names, and the record that each has. Does not make them; see _fetching. A folder:

    peer.json     the record; it is written last, so what has none is not whole
    site/         the wheel, unpacked; not there for a checkout
    needs/        what the peer's file names in NEEDS
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from hicache.core.errors import CallerError, closest, unknown
from hicache.files import TEXT, Maybe, Named, Record, fit, parsed, text_of, whole
from invariants.peers import facts
from invariants.peers.facts import Facts

RECORD = "peer.json"
SITE = "site"
NEEDS = "needs"
DRAFT = ".part-"  # before the name of a folder that is not whole
_UNDER = ("", "python", "src")  # where the package of a checkout is
_MOST_BYTES = 1 << 20  # of a record


@dataclass(frozen=True, slots=True)
class Made:
    """The record of an environment. python: the version for which its files are. needs: versions
    by name. bytes, files: of what is in the folder; left_out_bytes, left_out_files: of the wheel,
    and not in it. seconds: that making it took. made: when, in UTC. source: the checkout whose code
    is run instead of a wheel's."""

    peer: str
    distribution: str
    release: str
    python: str
    needs: dict[str, str]
    bytes: int
    files: int
    left_out_bytes: int
    left_out_files: int
    seconds: int
    made: str
    source: str | None = None


_SHAPES = {
    "str": TEXT,
    "int": whole(),
    "str | None": Maybe(TEXT),
    "dict[str, str]": Named(TEXT),
}


@dataclass(frozen=True, slots=True)
class Environment:
    """What a peer's process runs in. folder: None for a peer that needs nothing. source: a
    checkout."""

    facts: Facts
    release: str
    folder: Path | None = None
    source: Path | None = None

    @property
    def name(self) -> str:
        return spelled(self.facts.name, self.release)

    @property
    def root(self) -> Path | None:
        """The folder that holds the engine's package."""
        if self.source is not None:
            return package_of(self.source, self.facts).parent
        return None if self.folder is None else self.folder / SITE


def cache_folder(given: str | None = None) -> Path:
    """The folder that has all environments. given: as the user named it."""
    if given is not None:
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base).absolute() / "hicache" / "peers"


def spelled(peer: str, release: str) -> str:
    return f"{peer}=={release}"


def python_version() -> str:
    """The version for which compiled files are."""
    return ".".join(platform.python_version_tuple()[:2])


def facts_of(peer: str) -> Facts:
    """What the file of a peer says. Raises CallerError for an unknown peer."""
    files = facts.known()
    if peer not in files:
        raise unknown("PEER", peer, list(files))
    return facts.read(files[peer])


def chosen(name: str) -> tuple[Facts, str]:
    """The peer and release of a text such as sglang==0.5.23. Without a release it is the newest.

    Raises CallerError for one that the peer's file does not know."""
    peer, given, release = name.partition("==")
    found = facts_of(peer.strip())
    release = release.strip()
    if not given:
        return found, found.releases[-1]
    if release not in found.releases:
        raise CallerError(
            f"{found.name}: expected a release that its peer knows "
            f"({', '.join(found.releases)}), found {release!r}{closest(release, found.releases)}"
        )
    return found, release


def package_of(source: Path, found: Facts) -> Path:
    """The package of an engine in a checkout. Raises CallerError if it is not there."""
    for under in _UNDER:
        package = source / under / found.package
        if (package / "__init__.py").is_file():
            return package
    raise CallerError(
        f"--source: expected a checkout with the package {found.package}, found none in {source}; "
        "name the folder of the repository"
    )


def folder_of(cache: Path, peer: str, release: str, source: Path | None) -> Path:
    """The folder of an environment, whether it is there or not."""
    if source is None:
        return cache / f"{peer}-{release}"
    digest = sha256(os.fsencode(source)).hexdigest()[:8]
    return cache / f"{peer}-{release}-from-{digest}"


def environment_of(
    name: str,
    source: str | None = None,
    folder: str | None = None,
) -> Environment:
    """The environment of a peer and release such as sglang==0.5.23, which must be there.

    source: a checkout that is run in place of the release. folder: of all environments. Raises
    CallerError with the command that makes it.
    """
    found, release = chosen(name)
    checkout = None if source is None else Path(source).resolve()
    if not found.distribution:
        return Environment(found, release, None, checkout)
    where = folder_of(cache_folder(folder), found.home, release, checkout)
    wrong = why_unusable(where, found, release)
    if wrong:
        more = "" if source is None else f" --source {source}"
        more += "" if folder is None else f" --folder {folder}"
        raise CallerError(
            f"{spelled(found.name, release)}: expected its environment, found {wrong}; make it "
            f"with: hicache peers fetch {spelled(found.name, release)}{more}"
        )
    return Environment(found, release, where, checkout)


def why_unusable(folder: Path, found: Facts, release: str) -> str:
    """Why an environment cannot be used, in a few words; empty if it can."""
    if not (folder / RECORD).exists():
        return "none"
    try:
        made = read(folder)
    except CallerError:
        return "one whose record is damaged"
    if made.python != python_version():
        return f"one for Python {made.python}, and this is {python_version()}"
    if made.needs != versions(found.needs(release)):
        return "one that an older version of the peer needed"
    return ""


def versions(needs: tuple[str, ...]) -> dict[str, str]:
    """The versions of pinned requirements, by name."""
    pairs = [need.partition("==") for need in needs]
    return {name.partition("[")[0].strip(): version.strip() for name, _, version in pairs}


def read(folder: Path) -> Made:
    """The record of an environment. Raises CallerError if it is damaged."""
    path, advice = str(folder / RECORD), "fetch it again"
    try:
        document = parsed(text_of(path, "record of an environment", _MOST_BYTES, advice))
    except ValueError as error:
        raise CallerError(f"{path}: expected JSON, found {error}; {advice}") from None
    made: Made = fit(document, Record(Made, _SHAPES), path, advice)
    return made


def write(folder: Path, made: Made) -> None:
    (folder / RECORD).write_text(json.dumps(asdict(made), indent=1) + "\n", encoding="utf-8")


def environments(cache: Path) -> Iterator[tuple[Path, Made | None]]:
    """Every folder of an environment, with its record; None if that is damaged, or the environment
    is not whole."""
    for folder in sorted(cache.iterdir()) if cache.is_dir() else ():
        if folder.name.startswith(DRAFT) and folder.is_dir():
            yield folder, None
        elif (folder / RECORD).exists():
            try:
                yield folder, read(folder)
            except CallerError:
                yield folder, None
