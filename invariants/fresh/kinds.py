"""What kind of thing each name of a function is, as its annotations say.

Lives here: the kinds of names and expressions, and which other names of the same kind are at hand.
A kind is the text of an annotation (`Node`, `list[int]`), without `| None`; "" is unknown. It is
inferred from annotations of parameters, fields and results, as far as that is simple.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ..mutants import sources
from .functions import RUNTIME

_MANY = re.compile(r"(?:list|deque|set|frozenset|Sequence|Iterable|Iterator|Collection)\[(.*)\]")
_TUPLE = re.compile(r"tuple\[(.*)\]")
_MAP = re.compile(r"(?:dict|Mapping|Counter)\[(.*)\]")
_SAME = {"reversed", "list", "sorted", "tuple", "set"}  # their elements are those of the argument
_NUMBERS = {"len", "sum", "abs", "int"}


@dataclass
class Vocabulary:
    """What the source says.

    fields: by class, the kind of each attribute. results: the kind of what a function or
    "Class.method" returns. changed: attributes that some function sets after the object was made,
    and properties that read such. filled: attributes of which some function sets an element.
    """

    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """The vocabulary of the core and of the runtime."""
    words = Vocabulary()
    for module in (*sources.modules(), *RUNTIME):
        for one in sources.source(module).body:
            if isinstance(one, ast.ClassDef):
                words.fields.setdefault(one.name, {}).update(_attributes(one))
                for inner in one.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.decorator_list:
                        words.results[f"{one.name}.{inner.name}"] = kind_of(inner.returns)
            elif isinstance(one, ast.FunctionDef):
                words.results[one.name] = kind_of(one.returns)
    _learn_changes(words)
    return words


def _learn_changes(words: Vocabulary) -> None:
    properties: list[ast.FunctionDef] = []
    for module in (*sources.modules(), *RUNTIME):
        for (name, _), function in sources.defined(sources.source(module)).items():
            if is_property(function):
                properties.append(function)
            elif not name.endswith("__init__"):
                _note_changes(function, words)
    for _ in properties:  # one may read another
        for one in properties:
            reads = {node.attr for node in ast.walk(one) if isinstance(node, ast.Attribute)}
            if reads & words.changed:
                words.changed.add(one.name)


def is_property(function: ast.FunctionDef) -> bool:
    marks = function.decorator_list
    return any(isinstance(one, ast.Name) and one.id == "property" for one in marks)


def _note_changes(function: ast.FunctionDef, words: Vocabulary) -> None:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            words.changed.add(node.attr)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            whole: ast.expr = node
            while isinstance(whole, ast.Subscript):
                whole = whole.value
            if isinstance(whole, ast.Attribute):
                words.filled.add(whole.attr)


def kind_of(annotation: ast.expr | None) -> str:
    """The kind that an annotation names."""
    if annotation is None:
        return ""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation).replace(" | None", "")


def _attributes(one: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for inner in one.body:
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            yield inner.target.id, kind_of(inner.annotation)
        elif isinstance(inner, ast.FunctionDef):
            if is_property(inner):
                yield inner.name, kind_of(inner.returns)
            elif inner.name == "__init__":
                yield from _set_in_init(inner)


def _set_in_init(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    given = {one.arg: kind_of(one.annotation) for one in function.args.args}
    for one in ast.walk(function):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Attribute):
            yield one.target.attr, kind_of(one.annotation)
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Attribute):
            value = one.value
            if isinstance(value, ast.Name) and value.id in given:
                yield one.targets[0].attr, given[value.id]
            elif isinstance(value, ast.Constant) and type(value.value) in (int, bool):
                yield one.targets[0].attr, type(value.value).__name__


class Kinds:
    """The kinds of one function. since: the line at which each local name is first set."""

    def __init__(self, function: ast.FunctionDef, owner: str, words: Vocabulary) -> None:
        self._words = words
        self._names: dict[str, str] = {}
        self._inner: dict[str, str] = {}  # targets of comprehensions
        self._since: dict[str, int] = {}
        given = function.args
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            self._names[one.arg] = owner if one.arg == "self" else kind_of(one.annotation)
            self._since[one.arg] = 0
        for statement in function.body:
            self._learn(statement)

    def of(self, one: ast.expr) -> str:
        """The kind of an expression."""
        if isinstance(one, ast.Name):
            return self._inner.get(one.id) or self._names.get(one.id, "")
        if isinstance(one, ast.Attribute):
            return self._words.fields.get(self.of(one.value), {}).get(one.attr, "")
        if isinstance(one, ast.Subscript):
            whole = self.of(one.value)
            return whole if isinstance(one.slice, ast.Slice) else element(whole, held=True)
        if isinstance(one, ast.Call):
            return self._called(one)
        if isinstance(one, ast.Constant):
            return type(one.value).__name__ if type(one.value) in (int, bool) else ""
        if isinstance(one, ast.BinOp):
            return "int" if {self.of(one.left), self.of(one.right)} == {"int"} else ""
        return "bool" if isinstance(one, ast.Compare) else ""

    def others(self, name: str, line: int) -> list[str]:
        """Other local names of the same kind that are set before this line, or on it."""
        kind = self._names.get(name, "")
        return [
            other
            for other, held in self._names.items()
            if held == kind and kind and other != name and self._since[other] <= line
        ]

    def fields_like(self, one: ast.Attribute) -> list[str]:
        """Other attributes of the same kind that the object has."""
        held = self._words.fields.get(self.of(one.value), {})
        kind = held.get(one.attr, "")
        return [name for name, other in held.items() if kind == other and kind and name != one.attr]

    def may_change(self, read: ast.expr) -> bool:
        """Whether what a chain of attributes and subscripts reads may be another thing later. The
        name of an object that stays the same may not, even if the object changes.
        """
        if isinstance(read, ast.Call):
            return True
        node: ast.AST = read
        of_element = False
        while isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Attribute):
                filled = of_element and node.attr in self._words.filled
                if filled or node.attr in self._words.changed:
                    return True
            of_element = isinstance(node, ast.Subscript)
            node = node.value
        return False

    # -- learning

    def _learn(self, one: ast.stmt) -> None:
        for node in ast.walk(one):
            if isinstance(node, ast.comprehension):
                self._bind(node.target, self._elements(node.iter), 0, self._inner)
        if isinstance(one, ast.Assign):
            for target in one.targets:
                self._assign(target, one.value, one.lineno)
        elif isinstance(one, ast.AnnAssign):
            self._bind(one.target, kind_of(one.annotation), one.lineno, self._names)
        elif isinstance(one, ast.For):
            self._bind(one.target, self._elements(one.iter), one.lineno, self._names)
        for name in ("body", "orelse", "finalbody"):
            for inner in getattr(one, name, []):
                self._learn(inner)

    def _assign(self, target: ast.expr, value: ast.expr, line: int) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, held in zip(target.elts, value.elts, strict=False):
                self._bind(one, self.of(held), line, self._names)
        else:
            self._bind(target, self.of(value), line, self._names)

    def _bind(self, target: ast.expr, kind: str, line: int, names: dict[str, str]) -> None:
        if isinstance(target, ast.Name):
            if not names.get(target.id):
                names[target.id] = kind
            if names is self._names:
                self._since.setdefault(target.id, line)
        elif isinstance(target, ast.Tuple):
            tuple_ = _TUPLE.fullmatch(kind)
            parts = split(tuple_.group(1)) if tuple_ else []
            if len(parts) != len(target.elts) or "..." in parts:
                parts = [element(kind)] * len(target.elts)
            for one, part in zip(target.elts, parts, strict=True):
                self._bind(one, part, line, names)

    def _called(self, one: ast.Call) -> str:
        if isinstance(one.func, ast.Name):
            name = one.func.id
            if name in _NUMBERS:
                return "int"
            if name in ("min", "max") and one.args and not isinstance(one.args[0], ast.Starred):
                kind = self.of(one.args[0])
                return kind if len(one.args) > 1 else element(kind)
            if name in _SAME and one.args:
                return f"list[{self._elements(one.args[0])}]"
            return name if name in self._words.fields else self._words.results.get(name, "")
        if isinstance(one.func, ast.Attribute):
            whole = self.of(one.func.value)
            if mapped := _MAP.fullmatch(whole):
                key, *value = split(mapped.group(1))
                held = value[0] if value else "int"
                found = {"values": f"list[{held}]", "items": f"list[tuple[{key}, {held}]]"}
                return found.get(one.func.attr, held if one.func.attr in ("get", "pop") else "")
            if one.func.attr in ("pop", "popleft"):
                return element(whole)
            return self._words.results.get(f"{whole}.{one.func.attr}", "")
        return ""

    def _elements(self, one: ast.expr) -> str:
        """The kind of what a loop over the expression gets."""
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.args:
            if one.func.id == "range":
                return "int"
            if one.func.id == "enumerate":
                return f"tuple[int, {self._elements(one.args[0])}]"
            if one.func.id == "zip":
                return f"tuple[{', '.join(map(self._elements, one.args))}]"
        if isinstance(one, ast.Tuple | ast.List) and one.elts:
            return self.of(one.elts[0])
        return element(self.of(one))


def element(kind: str, held: bool = False) -> str:
    """What a loop over a thing of this kind gets; with `held`, what a subscript gets."""
    if many := _MANY.fullmatch(kind):
        return many.group(1)
    if mapped := _MAP.fullmatch(kind):
        parts = split(mapped.group(1))
        return parts[-1] if held else parts[0]
    if several := _TUPLE.fullmatch(kind):
        parts = [one for one in split(several.group(1)) if one != "..."]
        return parts[0] if len({*parts}) == 1 else ""
    return ""


def split(text: str) -> list[str]:
    """The parts between the commas that are not within brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [one.strip() for one in parts]
