"""Which modules are compiled: those in which a replay spends its time.

What stays as it is: entries, which may stand beside those of a user, but not the checks, which are
many and run after every operation; errors, which derive from built-in exceptions; the
clock, whose queue simpy shares.
"""

from pathlib import Path

_FOLDERS = (
    "hicache/core",
    "invariants/shadow",
    "invariants/checks",
    "sim/device",
    "sim/engine",
)
_FILES = (
    "hicache/runtime/controller.py",
    "hicache/runtime/driver.py",
    "hicache/runtime/encoding.py",
    "invariants/checker.py",
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
    result = [
        path.relative_to(root).as_posix()
        for folder in _FOLDERS
        for path in root.glob(f"{folder}/*.py")
    ]
    own = [text for text in result if text not in _LEFT and not text.endswith("__init__.py")]
    return sorted((*own, *_FILES))
