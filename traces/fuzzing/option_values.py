"""Reads the values of options of `hicache fuzz`. each raises ValueError, which says what was
expected."""

from __future__ import annotations

from invariants.fuzz.swarm import COMPONENTS
from invariants.fuzz.tapes.tape import MOST_RANKS


def ranks(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_RANKS:
        return int(text)
    raise ValueError(f"expected 1 to {MOST_RANKS}, found {text!r}")


def components(text: str) -> tuple[str, ...]:
    given = tuple(part.strip() for part in text.split(","))
    if given not in COMPONENTS:
        known = " or ".join(",".join(one) for one in COMPONENTS)
        raise ValueError(f"expected {known}, found {text!r}")
    return given
