"""Opens a tape: a file of `hicache fuzz`, or a test that `hicache shrink` exported.

A test is parsed and never executed. Its TAPE consists of literals and the record types of tapes.
Does not check what a tape means, or whether this version knows its operations.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from hicache import registry
from hicache.core.components.base import known
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.files import text_of
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Act, Entry, Tape

_RECORDS: dict[str, type[Any]] = {one.__name__: one for one in (Act, Config, Entry, Tape)}
_PARSE_ERRORS = (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError)


def open_tape(path: str) -> Tape:
    """The tape in a file. Raises CallerError, one line, for a file without a complete tape."""
    if not path.endswith(".py"):
        return tapes.read(Path(path))
    text = text_of(path, "test that shrink exported", tapes.MOST_BYTES)
    try:
        node = _assigned(ast.parse(text))
        value = None if node is None else _value(node)
        text_of_tape = tapes.dumps(value) if isinstance(value, Tape) else ""
    except (*_PARSE_ERRORS, CallerError) as error:
        reason = (str(error).splitlines() or [""])[0][:100]
        raise CallerError(
            f"{path}: expected a test that shrink exported, found {type(error).__name__}"
            f"{f': {reason}' if reason else ''}; name a tape"
        ) from None
    if not text_of_tape:
        raise CallerError(
            f"{path}: expected a test that shrink exported, with its TAPE, found none; name a tape"
        )
    return tapes.loads(text_of_tape, f"{path}: TAPE")


def _assigned(module: ast.Module) -> ast.expr | None:
    """The value that the module assigns to TAPE."""
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TAPE":
            return node.value
    return None


def _value(node: ast.expr) -> Any:
    """A literal, a record of literals, or a tuple of these. Raises ValueError otherwise."""
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    name = ast.unparse(node.func)
    record = _RECORDS.get(name) or _settings(name)
    if record is None:
        raise ValueError(f"expected literals in its TAPE, found a call of {name}")
    named = {one.arg or "": _value(one.value) for one in node.keywords}
    return record(*map(_value, node.args), **named)


def _settings(name: str) -> type[Any] | None:
    """The settings class of a component for a name such as swa.Settings; None for other names."""
    component, _, rest = name.partition(".")
    if rest != "Settings" or component not in known():
        return None
    settings: type[Any] | None = getattr(registry.load(registry.COMPONENTS, component), rest, None)
    return settings
