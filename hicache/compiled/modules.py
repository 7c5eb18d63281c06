"""Which modules are compiled: those in which a replay spends its time.

What stays as it is: entries, which may stand beside those of a user, but not the checks, which are
many and run after every operation; errors, which derive from built-in exceptions; the
clock, whose queue simpy shares.
"""

from __future__ import annotations

from pathlib import Path

_FOLDERS = (
    "hicache/core",
    "invariants/books",
    "invariants/checks",
    "sim/device",
    "sim/engine",
)
_FILES = (
    "hicache/runtime/controller.py",
    "hicache/runtime/driver.py",
    "hicache/runtime/encoding.py",
    "invariants/watch.py",
    "sim/content.py",
    "sim/recorder.py",
)
_LEFT = tuple(
    f"hicache/core/{name}.py"
    for name in (
        *("components", "entries", "errors"),
        *("eviction_policies", "prefetch_policies", "write_policies"),
    )
)


def compiled_files(root: Path) -> list[str]:
    """The files that are compiled, relative to the folder that has the packages, sorted."""
    found = [
        path.relative_to(root).as_posix() for one in _FOLDERS for path in root.glob(f"{one}/*.py")
    ]
    own = [one for one in found if one not in _LEFT and not one.endswith("__init__.py")]
    return sorted((*own, *_FILES))
