"""How well the words of a failure fit the words of a function: its name, its description, its code.

Rare words count more. Lives here: splitting text into words, and comparing them. Does not decide
what a failure is about.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from ..source_lines import HICACHE, ROOT, SourceLine

_ENDINGS = ("ing", "ies", "es", "ed", "s")
_LEAST = 3  # letters of a word
_NAME, _DESCRIPTION = 3, 2  # how often a word there counts, against once in the code


def words(text: str) -> Counter[str]:
    """The words of a text without their endings; `LockBal` and `lock_bal` are two words each."""
    found: Counter[str] = Counter()
    for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text):
        word = word.lower()
        ending = next((one for one in _ENDINGS if word.endswith(one)), "")
        if ending and len(word) - len(ending) >= _LEAST:
            word = word[: -len(ending)]
        if len(word) >= _LEAST:
            found[word] += 1
    return found


def fit(text: Mapping[str, int], functions: Iterable[SourceLine]) -> dict[SourceLine, float]:
    """How well the text fits each function: 0 to 1, and 1 for the function that it fits best."""
    known = _functions()
    scores = {one: _cosine(text, known.get(one, {})) for one in functions}
    best = max(scores.values(), default=0.0)
    return {one: score / best if best else 0.0 for one, score in scores.items()}


def _cosine(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    first, second = _weighed(one), _weighed(other)
    size = math.hypot(*first.values()) * math.hypot(*second.values())
    return sum(first[word] * second.get(word, 0.0) for word in first) / size if size else 0.0


def _weighed(counts: Mapping[str, int]) -> dict[str, float]:
    spread, total = _spread(), len(_functions())
    return {
        word: (1 + math.log(count)) * math.log((total + 1) / (spread[word] + 1))
        for word, count in counts.items()
    }


@cache
def _functions() -> dict[SourceLine, Counter[str]]:
    """The words of every function of the project."""
    found: dict[SourceLine, Counter[str]] = {}
    for path in sorted(HICACHE.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found[SourceLine(file, start, node.name)] = _said(node)
    return found


def _said(node: ast.FunctionDef) -> Counter[str]:
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    names += [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    description = f"{ast.get_docstring(node) or ''} "
    return words(f"{node.name} " * _NAME + description * _DESCRIPTION + " ".join(names))


@cache
def _spread() -> Counter[str]:
    """In how many functions each word occurs."""
    return Counter(word for said in _functions().values() for word in said)
