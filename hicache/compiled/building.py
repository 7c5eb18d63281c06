"""Compiles the modules with mypyc: `python -m hicache.compiled.building`.

Needs mypy and a C compiler. The old build stays until the new one is whole. A wheel that is made
afterwards contains the build (see `setup.py`).
"""

import os
import shutil
import sys

from mypyc.build import mypycify
from setuptools import setup

from ..core.errors import CallerError
from .finder import FOLDER, MANIFEST, ROOT, fingerprint
from .modules import compiled_files

_COMPILERS = ("cc", "gcc", "clang")
_WORK = ROOT / "build" / "compiled"


def build() -> int:
    """Makes the build; returns how many modules it has. Raises CallerError without a compiler."""
    if not any(map(shutil.which, (os.environ.get("CC", "cc").split()[0], *_COMPILERS))):
        raise CallerError(
            f"a C compiler: expected one of {', '.join(_COMPILERS)}, found none; install one, or "
            "do without: the pure source runs as before"
        )
    os.chdir(ROOT)  # mypyc names modules by their paths
    made_of = fingerprint()
    shutil.rmtree(_WORK, ignore_errors=True)
    made = _WORK / "made"
    extensions = mypycify(
        compiled_files(ROOT),
        opt_level="2",
        debug_level="0",
        multi_file=True,
        target_dir=str(_WORK / "c"),
    )
    arguments = ["--quiet", "build_ext", "--build-lib", str(made), "--build-temp", str(_WORK / "o")]
    setup(name="hicache-compiled", packages=[], ext_modules=extensions, script_args=arguments)
    files = sorted(path.relative_to(made) for path in made.rglob("*.so"))
    lines = [f"{str(file).partition('.')[0].replace('/', '.')}\t{file}" for file in files]
    (made / MANIFEST).write_text("\n".join((made_of, *lines)) + "\n")
    shutil.rmtree(FOLDER, ignore_errors=True)
    made.replace(FOLDER)
    shutil.rmtree(_WORK)
    return len(files)


if __name__ == "__main__":
    try:
        print(f"{build()} compiled modules in {FOLDER.relative_to(ROOT)}")
    except CallerError as error:
        sys.exit(f"hicache: error: {error}")
