"""Which modules are compiled: those in which a replay spends its time.

What stays as it is: entries, which may stand beside those of a user, but not the checks, which are
many and run after every operation; errors, and what raises its own, since they derive from
built-in exceptions; the clock, whose queue simpy shares.
"""

from pathlib import Path

_FOLDERS = (
    "hicache/core",
    "invariants/shadow",
    "invariants/checks",
    "invariants/spec",
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
_LEFT = (
    *("components", "errors", "lockstep"),
    *("eviction_policies", "plugins", "prefetch_policies", "write_policies"),
    "__init__",
)


def compiled_files(root: Path) -> list[str]:
    """The files that are compiled, relative to the folder that has the packages, sorted."""
    result = [
        path.relative_to(root).as_posix()
        for folder in _FOLDERS
        for path in root.glob(f"{folder}/*.py")
    ]
    own = [text for text in result if Path(text).stem not in _LEFT]
    return sorted((*own, *_FILES))
