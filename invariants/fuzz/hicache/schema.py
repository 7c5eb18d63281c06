"""Schemas of the arguments of operations. A tape is valid as a whole, or rejected.

Each operation's file defines `ARGS`: the shape of each argument, by its name (see hicache/files).
The state of a run does not matter here: a valid entry that does not fit the state does nothing.
Does not define what an operation does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from hicache import files, registry
from hicache.core import entries
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.files import Only, Spare, Value, fit, show, whole
from invariants.fuzz.hicache.faults.base import load as load_faults
from invariants.fuzz.hicache.tape import Tape
from invariants.fuzz.records import LEAST_MADE_UP

MOST = 1 << 30
MOST_TOKENS = 1 << 20  # of one prompt


Schema = dict[str, Any]  # shapes, see hicache/files


def number(least: int = 0, most: int = MOST, optional: bool = False) -> Any:
    return Spare(whole(least, most)) if optional else whole(least, most)


def listed(one: Value, most: int) -> Spare:
    """A list of at most `most` values; may be missing."""
    return Spare(
        Value(
            f"a list of at most {most}, each of them {one.says}",
            lambda value: (
                isinstance(value, list) and len(value) <= most and all(map(one.fits, value))
            ),
        )
    )


def is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 100 and (not value or value.isprintable())


def word(*options: str, optional: bool = False) -> Any:
    """One of these words, or any printable word if none are given."""
    shape = files.word(*options) if options else Value("a word", is_word)
    return Spare(shape) if optional else shape


FLAG = files.FLAG
OPTIONAL_FLAG = Spare(FLAG)
WORDS = Value(
    "a list of words",
    lambda value: isinstance(value, list) and all(map(is_word, value)),
)


def _is_run(run: Any) -> bool:
    return (
        isinstance(run, list)
        and len(run) == 2
        and all(type(one) is int for one in run)
        and 0 <= run[0] < 1 << 62
        and 0 < run[1] <= MOST_TOKENS
    )


def is_prompt(value: Any) -> bool:
    """Whether a value is a list of runs [token, count] with at least one token."""
    if not isinstance(value, list) or not value or not all(map(_is_run, value)):
        return False
    return bool(sum(run[1] for run in value) <= MOST_TOKENS)


PROMPT = Value(f"runs of [token, how many], 1 to {MOST_TOKENS} tokens", is_prompt)
REQUEST = number()
NEW_REQUEST = number(most=LEAST_MADE_UP - 1)


def check(tape: Tape, schemas: Mapping[str, Schema], name: str = "") -> None:
    """Raises CallerError with one line if an operation, a fault or a setting is unknown or
    invalid.
    """
    faults = ("", *load_faults())
    illegal = _illegal(tape.config)
    if illegal:
        raise CallerError(f"{name or 'tape'}: config: {illegal}; record the tape again")
    for line, entry in enumerate(tape.entries, 2):
        where = f"{name or 'tape'}, line {line}"
        if entry.op not in schemas:
            raise CallerError(
                f"{where}: expected an operation of this version ({', '.join(schemas)}), "
                f"found {show(entry.op)}; record the tape again"
            )
        again = "mend the line or record the tape again"
        fit(entry.args, Only(schemas[entry.op]), f"{where}: {entry.op}", again)
        strange = [act.fault for act in entry.acts if act.fault not in faults]
        if strange:
            raise CallerError(
                f"{where}: expected a fault of this version, one of "
                f"{len(faults) - 1}, found {show(strange[0])}{_close(strange[0], faults)}; "
                "mend the line or record the tape again"
            )


def _illegal(config: Config) -> str:
    """Returns the core's error for this configuration, or ""; of a policy that is not known, how to
    add one's own."""
    policies = (
        (registry.EVICTION_POLICIES, config.eviction_policy),
        (registry.WRITE_POLICIES, config.write_policy),
    )
    for package, name in policies:
        if not entries.has(package, name):
            return str(registry.missing(package, name))
    try:
        Core(config)
    except CallerError as error:
        return str(error)
    return ""


def _close(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name[:100], known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
