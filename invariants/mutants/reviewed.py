"""Reviewed lists: one name in a line, two spaces, and the reason why it is on the list."""

from __future__ import annotations

from pathlib import Path

from hicache.core.errors import CallerError


def reviewed(path: Path) -> dict[str, str]:
    """Names and reasons. Raises CallerError for a line without a reason."""
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("# "):
            continue
        name, _, reason = line.partition("  ")
        if not reason.strip():
            raise CallerError(
                f"{path.name}:{number}: expected a name, two spaces and a reason, "
                f"found {line!r}; say why nothing can tell it from the original"
            )
        found[name] = reason.strip()
    return found
