"""Makes the environment of a peer: its wheel unpacked, and beside it what its file says it needs.

An environment is made in a folder of its own beside the others, which gets its name when it is
whole. Each step leaves a folder with a name of its own, so the next fetch goes on where this one
was interrupted. Nothing is installed into the Python that runs this, and torch is not fetched: a
peer borrows it (see _borrowed).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile

from hicache.core.errors import CallerError
from invariants.peers.facts import Facts

from . import _folders as folders
from ._folders import DRAFT, NEEDS, SITE, Made, spelled

_PLAN = "plan.json"
_WHEEL = "wheel"
_HELD = "scratch"  # what pip unpacks and downloads on the way
_LOOK_S = 0.2
_TOLD_EVERY_S = 5.0
_CODE = ("purelib", "platlib")  # the parts of a wheel's data that are code

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was left out of a wheel."""

    bytes: int = 0
    files: int = 0


def fetch(cache: Path, found: Facts, release: str, source: Path | None, tell: Tell) -> Made:
    """Makes the environment, in place of one that there is. tell: is told each step.

    Raises CallerError if it cannot be made; what was done is kept for the next time.
    """
    name = spelled(found.name, release)
    where = folders.folder_of(cache, found.home, release, source)
    draft = cache / f"{DRAFT}{where.name}"
    begun = time.monotonic()
    if source is not None:
        folders.package_of(source, found)
    try:
        with _drafted(draft, name):
            _begin(draft, found, release)
            left_out = Unpacked()
            if source is None:
                _step(draft, _WHEEL, lambda to: _download(to, found, release, tell))
                left_out = _step(draft, SITE, lambda to: _unpack(draft, to, found, release, tell))
            _step(draft, NEEDS, lambda to: _install(to, name, found.needs(release), tell))
            for one in (_WHEEL, _HELD):
                shutil.rmtree(draft / one, ignore_errors=True)
            seconds = round(time.monotonic() - begun)
            made = _record(draft, found, release, source, left_out, seconds)
            folders.write(draft, made)
            _replace(draft, where)
            return made
    except OSError as error:
        raise CallerError(
            f"{name}: expected to write to {cache}, found: {error.strerror or error}; see that it "
            "can be written and has room, or name another with --folder"
        ) from None


@contextmanager
def _drafted(draft: Path, name: str) -> Iterator[None]:
    """The folder in which an environment is made, for one process at a time."""
    draft.mkdir(parents=True, exist_ok=True)
    handle = os.open(draft, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CallerError(
            f"{name}: expected that nobody else fetches it, found another hicache peers fetch; "
            "wait for it"
        ) from None
    finally:
        os.close(handle)


def _begin(draft: Path, found: Facts, release: str) -> None:
    """Removes what an interrupted fetch left, unless it was to make the same."""
    same = json.dumps([folders.python_version(), *found.needs(release)])
    plan = draft / _PLAN
    if not plan.exists() or plan.read_text(encoding="utf-8") != same:
        for one in list(draft.iterdir()):
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        plan.write_text(same, encoding="utf-8")


def _step(draft: Path, name: str, do: Callable[[Path], Unpacked | None]) -> Unpacked:
    """One step, whose result is a folder of this name, unless that is there already."""
    result, told = draft / name, draft / f"{name}.json"
    if not result.exists():
        scratch = draft / _HELD
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "new").mkdir(parents=True)
        said = do(scratch / "new") or Unpacked()
        told.write_text(json.dumps([said.bytes, said.files]), encoding="utf-8")
        os.replace(scratch / "new", result)
    return Unpacked(*json.loads(told.read_text(encoding="utf-8")))


def _download(to: Path, found: Facts, release: str, tell: Tell) -> None:
    asked = f"{found.distribution}=={release}"
    told = f"download {asked}"
    _pip(["download", "--dest", str(to), asked], to, spelled(found.name, release), told, tell)


def _install(to: Path, name: str, needs: Sequence[str], tell: Tell) -> None:
    if needs:
        told = f"install what it needs ({len(needs)} packages)"
        _pip(["install", "--target", str(to), *needs], to, name, told, tell)


def _unpack(draft: Path, to: Path, found: Facts, release: str, tell: Tell) -> Unpacked:
    """Unpacks the wheel without what a CPU never loads."""
    wheels = list((draft / _WHEEL).glob("*.whl"))
    assert len(wheels) == 1, wheels
    tell("unpack it")
    size = files = 0
    with zipfile.ZipFile(wheels[0]) as wheel:
        for member in wheel.infolist():
            place = _place(member.filename)
            if member.is_dir() or place is None:
                continue
            if found.is_unused(release, str(place)):
                size += member.file_size
                files += 1
                continue
            target = to / place
            target.parent.mkdir(parents=True, exist_ok=True)
            with wheel.open(member) as packed, open(target, "wb") as file:
                shutil.copyfileobj(packed, file)
    return Unpacked(size, files)


def _place(name: str) -> PurePosixPath | None:
    """Where a file of a wheel belongs, beside the others; None if it is no code, or would lie
    outside."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts:
        return None
    if parts and parts[0].endswith(".data"):
        return PurePosixPath(*parts[2:]) if len(parts) > 2 and parts[1] in _CODE else None
    return PurePosixPath(*parts)


def _pip(arguments: list[str], to: Path, name: str, told: str, tell: Tell) -> None:
    """Runs pip, which may take minutes. Raises CallerError with its last line if it fails."""
    tell(told)
    command = [sys.executable, "-m", "pip", arguments[0], "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", *arguments[1:]]
    scratch = to.parent / "pip"
    scratch.mkdir()
    settings = {"TMPDIR": str(scratch), "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        process = subprocess.Popen(
            command,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            due = time.monotonic() + _TOLD_EVERY_S
            while process.poll() is None:
                time.sleep(_LOOK_S)
                if time.monotonic() >= due:
                    due += _TOLD_EVERY_S
                    tell(f"{told}: {_measured(to.parent)[0] / 1e6:,.0f} MB so far")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            said.seek(0)
            raise _failed(name, told, [line.strip() for line in said if line.strip()])


def _failed(name: str, told: str, lines: list[str]) -> CallerError:
    errors = [line for line in lines if line.startswith("ERROR: ")]
    last = (errors or lines or ["nothing said"])[-1].removeprefix("ERROR: ")
    if last.endswith("No module named pip"):
        advice = f"install pip: {sys.executable} -m ensurepip"
    elif "No matching distribution" in last:
        advice = f"there is no wheel of it for Python {folders.python_version()} on this machine"
    else:
        advice = "see that the package index can be reached, and fetch again, which goes on here"
    return CallerError(f"{name}: expected pip to {told}, found: {last}; {advice}")


def _record(
    draft: Path, found: Facts, release: str, source: Path | None, left_out: Unpacked, seconds: int
) -> Made:
    for one in (_PLAN, *(f"{step}.json" for step in (_WHEEL, SITE, NEEDS))):
        (draft / one).unlink(missing_ok=True)
    size, files = _measured(draft)
    return Made(
        found.home,
        found.distribution,
        release,
        folders.python_version(),
        folders.versions(found.needs(release)),
        size,
        files,
        left_out.bytes,
        left_out.files,
        seconds,
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        None if source is None else str(source),
    )


def _replace(draft: Path, where: Path) -> None:
    """Gives the whole folder its name. A folder that had the name is removed."""
    if where.exists():
        old = where.with_name(f"{DRAFT}{where.name}-old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(where, old)
        os.replace(draft, where)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(draft, where)


def _measured(folder: Path) -> tuple[int, int]:
    """Bytes and number of the files in a folder, which may change meanwhile."""
    size = files = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
            files += 1
    return size, files
