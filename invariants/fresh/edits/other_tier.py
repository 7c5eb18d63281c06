"""The other tier, the other component or the other end of a copy: host for device, the backbone for
a component, target for source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import sites
from ..kinds import Kinds
from ..syntax import exchange
from .base import Change

TITLE = "use the other tier, component or end of a copy"
WEIGHT = 10
_ATTRIBUTES = (
    ("DEVICE", "HOST"),
    ("DEVICE_TO_HOST", "HOST_TO_DEVICE"),
    ("LOAD", "BACKUP"),
    ("BACKUP", "PREFILL"),
    ("source", "target"),
    ("device_pages", "host_pages"),
    ("_loads", "_backups"),
    ("writing_back", "giving_up"),
    ("frees", "gives_up"),
)
_NAMES = (
    ("DEVICE", "HOST"),
    ("HOST", "DUPLICATE"),
    ("device", "host"),
    ("source", "target"),
    ("index", "BACKBONE"),
)
_TIERED = ("pages", "locks", "with_pages", "pools")


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    local = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    local |= {one.arg for one in function.args.args}
    for node, at in sites(function):
        if isinstance(node, ast.Attribute):
            for name in _others(node.attr, _ATTRIBUTES):
                yield Change(at, partial(setattr, node, "attr", name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            for name in _others(node.id, _NAMES):
                if name.isupper() or name in local:
                    yield Change(at, partial(setattr, node, "id", name))
            if node.id in ("tier", "target") and kinds.of(node) in ("Tier", "int"):
                other = ast.BinOp(ast.Constant(1), ast.Sub(), ast.Name(node.id, ast.Load()))
                yield Change(at, partial(exchange, node, other, at))
        elif isinstance(node, ast.Subscript) and _is_tiered(node):
            yield Change(at, partial(_other_number, node))
        elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store):
            names = [one.id for one in node.elts if isinstance(one, ast.Name)]
            if len(names) == len(node.elts) == 2 and tuple(names) in _NAMES:
                yield Change(at, node.elts.reverse)


def _others(name: str, pairs: tuple[tuple[str, str], ...]) -> list[str]:
    return [two if name == one else one for one, two in pairs if name in (one, two)]


def _is_tiered(node: ast.Subscript) -> bool:
    """Whether it is like `pages[0]`: a tier by its number."""
    whole, part = node.value, node.slice
    if not (isinstance(whole, ast.Attribute) and whole.attr in _TIERED):
        return False
    return isinstance(part, ast.Constant) and part.value in (0, 1)


def _other_number(node: ast.Subscript) -> None:
    assert isinstance(node.slice, ast.Constant)
    node.slice.value = 1 - int(str(node.slice.value))
