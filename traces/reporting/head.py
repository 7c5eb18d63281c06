"""The keys that every JSON document begins with. Imports nothing else, so a command that needs no
replay starts quickly."""

from __future__ import annotations

from hicache.version import VERSION

SCHEMA = 1  # grows when a key changes its meaning or goes


def head(command: str, complete: bool) -> dict[str, object]:
    """The keys that every document has. command: as the user typed it."""
    return {
        "schema": SCHEMA,
        "hicache_version": VERSION,
        "command": command,
        "complete": complete,
    }
