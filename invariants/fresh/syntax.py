"""What the edits need of Python's syntax: blocks of statements, what statements read and write.

Lives here: blocks, replacement, whether two statements may change places without any effect, and
names that are read before they are set. Does not choose or make edits (see edits) and knows nothing
about the core.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..mutants.sources import is_guard
from .footprints import ANYTHING, footprints, touched

Block = list[ast.stmt]
JUMPS = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_FIELDS = ("body", "orelse", "finalbody")


def blocks(function: ast.FunctionDef) -> Iterator[tuple[Block, ast.AST]]:
    """Every list of statements in the function, with the statement that it belongs to."""
    for node in ast.walk(function):
        for name in _FIELDS:
            held = getattr(node, name, None)
            if isinstance(held, list) and held and isinstance(held[0], ast.stmt):
                yield held, node


def editable(one: ast.stmt) -> bool:
    """Whether a statement decides something: no assert, no guard against a bug, no docstring."""
    if isinstance(one, ast.Assert | ast.Pass) or is_guard(one):
        return False
    return not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))


def remove(block: Block, one: ast.stmt) -> None:
    """Removes a statement from its block."""
    place(block, one, [])


def place(block: Block, old: ast.stmt, new: Sequence[ast.stmt]) -> None:
    """Puts statements in the place of one."""
    at = next(index for index, one in enumerate(block) if one is old)
    block[at : at + 1] = new
    if not block:
        block.append(ast.copy_location(ast.Pass(), old))


def exchange(old: ast.expr, new: ast.expr, root: ast.AST) -> None:
    """Puts an expression in the place of another one below `root`."""
    for node in ast.walk(root):
        for name, held in ast.iter_fields(node):
            if held is old:
                setattr(node, name, ast.copy_location(new, old))
            elif isinstance(held, list):
                held[:] = [ast.copy_location(new, old) if one is old else one for one in held]


def heads(one: ast.stmt) -> list[ast.expr]:
    """The expressions that a statement evaluates first, without its blocks."""
    if isinstance(one, ast.If | ast.While):
        return [one.test]
    if isinstance(one, ast.For):
        return [one.iter]
    held = getattr(one, "value", None)
    return [held] if isinstance(held, ast.expr) else []


# -- what statements read and write


@dataclass(frozen=True)
class Effects:
    """Names and attributes (".name") that a statement reads and writes, with all that it calls.

    jumps: whether it may end its block. leaves: only with the function, so that local names do not
    matter any more.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    jumps: bool
    leaves: bool

    @property
    def outside(self) -> bool:
        """Whether it may change anything but local names."""
        return any(entry[0] == "." for entry in self.writes)


def effects(one: ast.AST) -> Effects:
    reads: set[str] = set()
    writes: set[str] = set()
    jumps = stays = False
    for node in ast.walk(one):
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else writes).add(node.id)
        elif isinstance(node, ast.Yield | ast.YieldFrom):
            writes.add(ANYTHING)
        else:
            found = touched(node, footprints())
            reads |= found.reads
            # whoever else has an object that a name holds sees the change, too
            writes |= found.writes | {f".{name}" for name in found.writes if name[0] != "."}
        jumps = jumps or isinstance(node, JUMPS)
        stays = stays or isinstance(node, ast.Continue | ast.Break)
    return Effects(frozenset(reads), frozenset(writes), jumps, jumps and not stays)


def commute(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements do the same in either order, as far as this can be seen."""
    if _sets_element(one) and _sets_element(other):
        return True  # of two containers, or two elements of one
    first, second = effects(one), effects(other)
    for mine, theirs in ((first, second), (second, first)):
        if mine.jumps and (theirs.outside or theirs.jumps):
            return False
        if mine.jumps and theirs.writes and not mine.leaves:
            return False
        both = theirs.reads | theirs.writes
        anything = ANYTHING in mine.writes and any(entry[0] == "." for entry in both)
        if anything or mine.writes & both:
            return False
    return True


def _sets_element(one: ast.stmt) -> bool:
    """Whether it is like `nodes[node.id] = node`: what it stores is in no container."""
    if not (isinstance(one, ast.Assign) and len(one.targets) == 1):
        return False
    return isinstance(one.targets[0], ast.Subscript) and isinstance(one.value, ast.Name)


# -- names that are read before they are set


def names_set(code: ast.stmt) -> set[str]:
    """The local names that a function or a statement sets."""
    return {
        node.id
        for node in ast.walk(code)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def names_used(function: ast.FunctionDef) -> set[str]:
    """Names that the function reads and binds nowhere: those of its module, and builtins."""
    given = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    given |= {node.name or "" for node in ast.walk(function) if isinstance(node, ast.ExceptHandler)}
    reads = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return reads - given - names_set(function)


def read_too_early(function: ast.FunctionDef, local: set[str]) -> bool:
    """Whether one of these local names is read where no statement before can have set it."""
    given = function.args
    known = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    known |= {one.arg for one in (given.vararg, given.kwarg) if one is not None}
    return _too_early(function.body, known, local)


def _too_early(body: Block, known: set[str], local: set[str]) -> bool:
    """Adds to `known` what the block sets; of several branches, what any of them sets."""
    for one in body:
        parts = [one] if not _has_blocks(one) else heads(one)
        for part in parts:
            reads = effects(part).reads & local
            inner = _bound_within(part)
            if not reads <= known | inner:
                return True
        known |= effects(one).writes if not _has_blocks(one) else _targets(one)
        for name in (*_FIELDS, "handlers"):
            for inner_body in _bodies(getattr(one, name, [])):
                if _too_early(inner_body, known, local):
                    return True
    return False


def _has_blocks(one: ast.stmt) -> bool:
    return any(getattr(one, name, None) for name in _FIELDS)


def _bodies(held: list[ast.stmt] | list[ast.ExceptHandler]) -> Iterator[Block]:
    if held and isinstance(held[0], ast.ExceptHandler):
        yield from (one.body for one in held if isinstance(one, ast.ExceptHandler))
    elif held:
        yield [one for one in held if isinstance(one, ast.stmt)]


def _targets(one: ast.stmt) -> set[str]:
    if not isinstance(one, ast.For):
        return set()
    return {node.id for node in ast.walk(one.target) if isinstance(node, ast.Name)}


def _bound_within(part: ast.AST) -> set[str]:
    """Names that an expression binds itself: targets of comprehensions, and with `:=`."""
    found: set[str] = set()
    for node in ast.walk(part):
        if isinstance(node, ast.comprehension | ast.NamedExpr):
            found |= {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.Lambda):
            found |= {one.arg for one in node.args.args}
    return found
