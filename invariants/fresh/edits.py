"""The kinds of edits: small mistakes as people make them.

A kind is a function that yields every change of this kind that is possible in a function of the
source. `@_kind(weight)` says how often it is drawn, compared with the other kinds that are possible
there. A change is carried out in place, on the syntax tree that was given. Does not draw (see
drawing).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from ..mutants.sources import BOUNDARY, OPPOSITE, sites
from .kinds import Kinds
from .syntax import (
    JUMPS,
    Block,
    blocks,
    commute,
    editable,
    effects,
    exchange,
    heads,
    names_set,
    place,
    remove,
)


@dataclass(frozen=True)
class Change:
    """One possible change. at: the statement that it changes, or the first of them. apply: carries
    it out.
    """

    at: ast.stmt
    apply: Callable[[], None]


Changes = Callable[[ast.FunctionDef, Kinds], Iterator[Change]]


class Edit(NamedTuple):
    weight: int
    changes: Changes


EDITS: dict[str, Edit] = {}  # by name, in alphabetical order, by which they are drawn


def _kind(weight: int) -> Callable[[Changes], Changes]:
    def add(changes: Changes) -> Changes:
        EDITS[changes.__name__.replace("_", "-")] = Edit(weight, changes)
        return changes

    return add


def _calls(node: ast.AST, *names: str) -> bool:
    """Whether a node calls one of these functions."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _swap(held: list[Any], at: int) -> None:
    held[at], held[at + 1] = held[at + 1], held[at]


@_kind(10)
def change_condition(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """A condition is negated, or made weaker or stronger."""
    for node, at in sites(function):
        if isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield Change(at, partial(setattr, node, "op", other))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield Change(at, partial(exchange, node, node.operand, at))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE:
            opposite = OPPOSITE[type(node.ops[0])]()
            yield Change(at, partial(node.ops.__setitem__, 0, opposite))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("any", "all"):
                other_name = "all" if node.func.id == "any" else "any"
                yield Change(at, partial(setattr, node.func, "id", other_name))
        elif isinstance(node, ast.If | ast.IfExp) and not _is_changed_below(node.test):
            yield Change(at, partial(_negate, node))


def _is_changed_below(test: ast.expr) -> bool:
    """Whether the changes of its parts include that of the whole condition."""
    if isinstance(test, ast.Compare):
        return type(test.ops[0]) in OPPOSITE
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _negate(node: ast.If | ast.IfExp) -> None:
    node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)


@_kind(8)
def drop_call(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """A call that is made only for its effect is missing."""
    for block, _ in blocks(function):
        for one in block:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
                yield Change(one, partial(remove, block, one))


@_kind(14)
def drop_guard(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """A guard is missing: an early exit, one operand of a condition, a filter, or a bound."""
    for block, _ in blocks(function):
        for one in block:
            if editable(one) and _is_early_exit(one):
                yield Change(one, partial(remove, block, one))
    for node, at in sites(function):
        if isinstance(node, ast.BoolOp):
            for operand in node.values:
                yield Change(at, partial(_drop, node, operand, at))
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield Change(at, partial(node.ifs.remove, test))
        elif isinstance(node, ast.Call) and _is_bound(node):
            for held in node.args:
                yield Change(at, partial(exchange, node, held, at))


def _is_early_exit(one: ast.stmt) -> bool:
    if not isinstance(one, ast.If) or one.orelse:
        return False
    return len(one.body) == 1 and isinstance(one.body[0], JUMPS)


def _is_bound(node: ast.Call) -> bool:
    """Whether it is like `max(0, count)`."""
    plain = not any(isinstance(one, ast.Starred) for one in node.args)
    return _calls(node, "min", "max") and plain and len(node.args) == 2 and not node.keywords


def _drop(node: ast.BoolOp, operand: ast.expr, at: ast.stmt) -> None:
    left = [one for one in node.values if one is not operand]
    exchange(node, left[0] if len(left) == 1 else ast.BoolOp(node.op, left), at)


@_kind(6)
def early_return(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """A function or a loop ends too early, or a loop goes on where it should end."""
    results = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
    last = function.body[-1]
    exits: ast.stmt | None = None
    if isinstance(last, ast.Return):
        exits = last
    elif not any(one.value is not None for one in results):
        exits = ast.Return(None)
    for block, owner in blocks(function):
        inner = owner is not function and not isinstance(block[-1], JUMPS)
        if exits is not None and inner and not _comes_next(function, owner, exits):
            yield Change(block[-1], partial(_append, block, exits))
        looped = isinstance(owner, ast.For | ast.While) and owner.body is block
        if looped and not isinstance(block[-1], JUMPS):
            yield Change(block[-1], partial(_append, block, ast.Break()))
        for one in block:
            if isinstance(one, ast.Continue):
                yield Change(one, partial(place, block, one, [ast.Break()]))
            elif isinstance(one, ast.Break):
                yield Change(one, partial(place, block, one, [ast.Continue()]))
    if exits is not None:
        own = [one for one in function.body if editable(one) and one is not last]
        for one in own[1:]:
            yield Change(one, partial(_before, function.body, one, exits))


def _comes_next(function: ast.FunctionDef, owner: ast.AST, exits: ast.stmt) -> bool:
    """Whether the function returns the same behind an `if` anyway."""
    following = next(
        block[at + 1 :]
        for block, _ in blocks(function)
        for at, one in enumerate(block)
        if one is owner
    )
    if not following:
        return function.body[-1] is owner and ast.dump(exits) == ast.dump(ast.Return(None))
    return isinstance(owner, ast.If) and ast.dump(following[0]) == ast.dump(exits)


def _append(block: Block, one: ast.stmt) -> None:
    block.append(ast.copy_location(deepcopy(one), block[-1]))


def _before(block: Block, at: ast.stmt, one: ast.stmt) -> None:
    place(block, at, [ast.copy_location(deepcopy(one), at), at])


@_kind(12)
def forget_branch(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """One part of several is forgotten: an assignment of a reset, a target, an element that a loop
    goes through, an `else`."""
    for block, owner in blocks(function):
        for one in block:
            yield from _assignments(block, one)
        if isinstance(owner, ast.If) and owner.orelse is block:
            yield Change(owner, partial(setattr, owner, "orelse", []))
    for node, at in sites(function):
        shown = node.iter if isinstance(node, ast.For) else None
        if isinstance(shown, ast.Tuple | ast.List) and len(shown.elts) > 1:
            for held in shown.elts:
                yield Change(at, partial(shown.elts.remove, held))


def _assignments(block: Block, one: ast.stmt) -> Iterator[Change]:
    if isinstance(one, ast.AugAssign) and _is_kept(one.target):
        yield Change(one, partial(remove, block, one))
    if not isinstance(one, ast.Assign):
        return
    if len(one.targets) > 1:
        for target in one.targets:
            yield Change(one, partial(one.targets.remove, target))
    target, value = one.targets[0], one.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for index in range(len(target.elts)):
            yield Change(one, partial(_forget, target, value, index))
    elif len(one.targets) == 1 and _is_kept(target):
        yield Change(one, partial(remove, block, one))


def _is_kept(target: ast.expr) -> bool:
    """Whether an assignment changes what somebody else sees."""
    return isinstance(target, ast.Attribute | ast.Subscript)


def _forget(target: ast.Tuple, value: ast.Tuple, index: int) -> None:
    del target.elts[index], value.elts[index]


@_kind(12)
def off_by_one(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """Off by one at a boundary: a comparison, an end of a slice or range, a number."""
    for node, at in sites(function):
        if isinstance(node, ast.Compare):
            for index, op in enumerate(node.ops):
                if type(op) in BOUNDARY:
                    beside = BOUNDARY[type(op)]()
                    yield Change(at, partial(node.ops.__setitem__, index, beside))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            for value in (node.value - 1, node.value + 1):
                yield Change(at, partial(setattr, node, "value", value))
        elif isinstance(node, ast.BinOp) and _is_one(node):
            yield Change(at, partial(exchange, node, node.left, at))
        elif isinstance(node, ast.Slice):
            for end in (node.lower, node.upper):
                yield from _beside(end, at)
        elif isinstance(node, ast.Call) and _calls(node, "range"):
            for end in node.args:
                yield from _beside(end, at)


def _is_one(node: ast.BinOp) -> bool:
    """Whether it is like `count + 1` or `count - 1`."""
    plus = isinstance(node.op, ast.Add | ast.Sub)
    return plus and isinstance(node.right, ast.Constant) and node.right.value == 1


def _beside(end: ast.expr | None, at: ast.stmt) -> Iterator[Change]:
    if end is None or isinstance(end, ast.Constant | ast.Starred):
        return
    for op in (ast.Add(), ast.Sub()):
        moved = ast.BinOp(end, op, ast.Constant(1))
        yield Change(at, partial(exchange, end, moved, at))


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


@_kind(10)
def other_tier(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """The other tier, the other component or the other end of a copy: host for device, the
    backbone for a component, target for source."""
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


@_kind(14)
def sibling_variable(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """Another name of the same kind stands where one was meant: `above` for `node`, `free` for
    `available`, the arguments of a call the other way round."""
    for node, at in sites(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            for name in kinds.others(node.id, at.lineno):
                yield Change(at, partial(setattr, node, "id", name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            for name in kinds.fields_like(node):
                yield Change(at, partial(setattr, node, "attr", name))
        elif isinstance(node, ast.Call) and not _calls(node, "min", "max"):
            for index in range(len(node.args) - 1):
                one, other = node.args[index : index + 2]
                if kinds.of(one) and kinds.of(one) == kinds.of(other):
                    yield Change(at, partial(_swap, node.args, index))


_STALE = "_before"


@_kind(10)
def stale_value(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """A value is read too early: above the statement that changes it, or once before a loop."""
    for block, owner in blocks(function):
        for at, other in enumerate(block):
            for read in _reads(other) if editable(other) else ():
                name = ast.Name(_STALE, ast.Store())
                hoisted = ast.copy_location(ast.Assign([name], read), read)
                one = _changing(block[:at], hoisted) if kinds.may_change(read) else None
                if one is not None:
                    yield Change(other, partial(_hoist, block, one, other, read, hoisted))
        if isinstance(owner, ast.For | ast.While) and owner.body is block:
            yield from _out_of_loop(function, owner)


def _changing(before: Block, hoisted: ast.Assign) -> ast.stmt | None:
    """The last of these statements that may change what is read. None if there is none, or if it,
    or one behind it, sets a name that is needed to read it."""
    names = {name for name in effects(hoisted).reads if not name.startswith(".")}
    for one in reversed(before):
        if names_set(one) & names:
            return None
        if not commute(one, hoisted):
            return one if editable(one) and effects(one).outside else None
    return None


def _reads(one: ast.stmt) -> Iterator[ast.expr]:
    """What a statement reads of objects: the longest chains of attributes, and lengths."""
    pending: list[ast.AST] = list(heads(one))
    while pending:
        node = pending.pop()
        loaded = isinstance(getattr(node, "ctx", None), ast.Load)
        chain = isinstance(node, ast.Attribute | ast.Subscript) and loaded
        if isinstance(node, ast.Call):
            if _calls(node, "len"):
                yield node
            else:
                held = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                pending += [*node.args, *(one.value for one in node.keywords), *held]
        elif chain and isinstance(node, ast.expr):
            yield node
        elif not isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def _hoist(
    block: Block, one: ast.stmt, other: ast.stmt, read: ast.expr, hoisted: ast.Assign
) -> None:
    exchange(read, ast.Name(_STALE, ast.Load()), other)
    place(block, one, [hoisted, one])


def _out_of_loop(function: ast.FunctionDef, loop: ast.For | ast.While) -> Iterator[Change]:
    """The first assignments of a loop's body that do not use what the loop sets."""
    own = effects(loop)
    for one in loop.body:
        if not isinstance(one, ast.Assign):
            return
        now = effects(one)
        theirs = {name for name in own.writes if not name.startswith(".")} - now.writes
        if now.reads.isdisjoint(theirs | now.writes) and now.reads and own.outside:
            yield Change(one, partial(_above, function, loop, one))


def _above(function: ast.FunctionDef, loop: ast.For | ast.While, one: ast.stmt) -> None:
    place(loop.body, one, [])
    for block, _ in blocks(function):
        if any(held is loop for held in block):
            place(block, loop, [one, loop])
            return


@_kind(12)
def swap_statements(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """Two adjacent statements change places. Pairs that do the same in either order are left
    out."""
    for block, _ in blocks(function):
        for at, (one, other) in enumerate(pairwise(block)):
            fixed = isinstance(one, JUMPS) or isinstance(other, JUMPS)
            if not fixed and editable(one) and editable(other) and not commute(one, other):
                yield Change(one, partial(_swap, block, at))


@_kind(6)
def wrong_default(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """A wrong default: of a parameter, of `get`, of an `else`, or of a first or last value."""
    given = function.args
    for held in (*given.defaults, *given.kw_defaults):
        yield from _constant(held, function.body[0])
    for node, at in sites(function):
        if isinstance(node, ast.Return) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ):
            yield from _constant(node.value, at)
        elif isinstance(node, ast.IfExp):
            yield from _constant(node.orelse, at)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                yield from _constant(node.args[-1], at)
            for keyword in node.keywords:
                if keyword.arg != "strict":  # of zip: like an assert
                    yield from _constant(keyword.value, at)


def _constant(held: ast.expr | None, at: ast.stmt) -> Iterator[Change]:
    if isinstance(held, ast.UnaryOp) and isinstance(held.operand, ast.Constant):
        yield Change(at, partial(setattr, held.operand, "value", 0))
    elif isinstance(held, ast.Constant) and isinstance(held.value, bool):
        yield Change(at, partial(setattr, held, "value", not held.value))
    elif isinstance(held, ast.Constant) and isinstance(held.value, int) and held.value in (0, 1):
        yield Change(at, partial(setattr, held, "value", 1 - held.value))


_MIRRORED = {"min": "max", "max": "min"}


@_kind(6)
def wrong_order(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    """A wrong order: a loop from the other end, another key of a sort or heap, min for max."""
    for node, at in sites(function):
        if isinstance(node, ast.For):
            yield Change(at, partial(_backwards, node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in _MIRRORED:
                yield Change(at, partial(setattr, node.func, "id", _MIRRORED[node.func.id]))
            elif node.func.id in ("reversed", "sorted") and node.args:
                plain = ast.Call(ast.Name("list", ast.Load()), node.args, [])
                yield Change(at, partial(exchange, node, plain, at))
            for keyword in node.keywords:
                if keyword.arg == "key":
                    yield Change(at, partial(node.keywords.remove, keyword))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            if not isinstance(node.operand, ast.Constant):
                yield Change(at, partial(exchange, node, node.operand, at))
        elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and _is_rank(node):
            yield Change(at, partial(_swap, node.elts, 0))


def _backwards(node: ast.For) -> None:
    whole = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
    back = ast.UnaryOp(ast.USub(), ast.Constant(1))
    node.iter = ast.Subscript(whole, ast.Slice(None, None, back), ast.Load())


def _is_rank(node: ast.Tuple) -> bool:
    """Whether a tuple is made to be compared: several parts, one of them negative."""
    negative = any(isinstance(one, ast.UnaryOp) for one in node.elts)
    return len(node.elts) > 1 and negative
