"""Uses the compiled modules, where they were made of this source and for this Python.

`install` puts a finder before Python's own. It finds the compiled modules in their folder; every
other module, and all of them without a usable build, comes from the source. HICACHE_BUILD says what
runs: `pure`, `compiled`, or nothing, which leaves the choice to the command. `building` compiles.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import source_hash, spec_from_file_location
from pathlib import Path
from types import ModuleType

from .modules import compiled_files

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("built")
MANIFEST = "manifest.txt"
CHOICE = "HICACHE_BUILD"
AGAIN = "the compiled modules are of another source or Python; `make compiled` makes them again"


class CompiledFinder(MetaPathFinder):
    """Finds the compiled modules. files: the file of each module, by its name."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def fingerprint(root: Path = ROOT) -> str:
    """What a build is made of: this Python, and the text of every module that is compiled."""
    files = compiled_files(root)
    parts = [f"{name}\0".encode() + (root / name).read_bytes() for name in files]
    python = f"{sys.implementation.cache_tag}-{os.uname().machine}"
    return f"{python} {source_hash(b''.join(parts)).hex()}"


def usable(folder: Path = FOLDER) -> dict[str, str]:
    """The compiled modules and their files; empty if there are none of this source and Python."""
    try:
        made_of, *lines = (folder / MANIFEST).read_text().splitlines()
    except (OSError, ValueError):
        return {}
    if made_of != fingerprint():
        return {}
    return {name: str(folder / file) for name, _, file in (line.partition("\t") for line in lines)}


def which(folder: Path = FOLDER) -> str:
    """Which build the commands that compute most would run, in words."""
    if os.environ.get(CHOICE) == "pure":
        return f"pure source, as {CHOICE} says"
    count = len(usable(folder))
    if count:
        return f"replays run {count} compiled modules"
    return f"pure source: {AGAIN}" if (folder / MANIFEST).exists() else "pure source"


def install(folder: Path = FOLDER) -> bool:
    """From now on, modules that are not imported yet come from the build. Returns False, and
    changes nothing, if there is no usable one."""
    files = usable(folder)
    if files and not any(
        isinstance(finder_protocol, CompiledFinder) for finder_protocol in sys.meta_path
    ):
        sys.meta_path.insert(0, CompiledFinder(files))
    return bool(files)
