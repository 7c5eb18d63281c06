"""What a user says of a log: its columns, and what its prompts share, which no column says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hicache.core.errors import closest

from ._clock import UNITS

NEEDED = ("time", "input", "output")
ROLES = (*NEEDED, "session", "turn")
GROWTHS = ("append", "replace")
SHARINGS = ("none", "most")


class Column(NamedTuple):
    """The name of a column. unit: of its times, one of UNITS; empty for what the values say."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """columns: as `parse_columns` reads them. shared_prefix: tokens with which all prompts begin.
    growth: one of GROWTHS. sharing: one of SHARINGS instead of these two."""

    columns: str | None = None
    shared_prefix: int | None = None
    growth: str | None = None
    sharing: str | None = None

    @property
    def words(self) -> list[str]:
        """The options that were given, as on a command line."""
        given = {
            "--columns": self.columns,
            "--shared-prefix": self.shared_prefix,
            "--growth": self.growth,
            "--sharing": self.sharing,
        }
        pairs = ((flag, str(value)) for flag, value in given.items() if value is not None)
        return [word for pair in pairs for word in pair]


def parse_columns(text: str) -> Mapping[str, Column]:
    """The columns of `time=ts:ms,input=prompt_tokens,...` by role. Raises ValueError that says what
    was expected and found."""
    found: dict[str, Column] = {}
    for part in text.split(","):
        role, _, name = (piece.strip() for piece in part.partition("="))
        if role not in ROLES or not name:
            hint = closest(role, ROLES) if role not in ROLES else ""
            raise ValueError(
                f"expected {', '.join(ROLES)}, each with =COLUMN, found {part[:40]!a}{hint}"
            )
        if role in found:
            raise ValueError(f"expected each of {', '.join(ROLES)} once, found {role} twice")
        bare, _, unit = name.rpartition(":")
        is_unit = role == "time" and bare and unit in UNITS
        found[role] = Column(bare, unit) if is_unit else Column(name)
    lacking = [role for role in NEEDED if role not in found]
    if lacking:
        raise ValueError(f"expected {', '.join(NEEDED)}, found no {lacking[0]}")
    if "turn" in found and "session" not in found:
        raise ValueError("expected session beside turn, found turn alone")
    return found
