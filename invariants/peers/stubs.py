"""Stand-ins for modules of an engine that need a GPU."""

from __future__ import annotations

from collections.abc import Sequence


def install(stubs: Sequence[str], bare: Sequence[str], root: str) -> None:
    """Imports of these modules give stubs from now on."""
