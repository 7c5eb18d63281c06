"""Changes each constant of a unit in turn, and says which of them no test noticed.

    python -m tests.bench.units traces/deciding sim/storage -- tests/traces/test_units.py

Before `--`: files and folders whose constants are changed; after it, what pytest runs (by default
tests/traces/test_units.py). A constant of a unit is a thousand, a million, 1024, an hour and the
like, as the value of a name or as a factor. 10^9 becomes 2^30 and so on, and the others 5 % more:
changes that look like a slip between GB and GiB. The project is copied, so nothing here changes.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TESTS = ["tests/traces/test_units.py"]
BINARY = {10.0 ** (3 * power): 1 << 10 * power for power in range(1, 5)}
OTHERS = (1e-3, 1e-6, 1e-9, 24.0, 60.0, 365.0, 3600.0, 8760.0, *(float(x) for x in BINARY.values()))
LIMIT_S = 300


class Site(NamedTuple):
    line: int
    begin: int
    end: int
    value: float


def sites(source: str) -> list[Site]:
    """The constants of units in some source."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        for part in _parts(node):
            value = _value(part)
            if value is not None and part.lineno == part.end_lineno:
                assert part.end_col_offset is not None
                found.add(Site(part.lineno, part.col_offset, part.end_col_offset, value))
    return sorted(found)


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        yield node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Dict):
        yield from node.values


def _value(node: ast.expr) -> float | None:
    """What a literal or a power of two or ten is, if it is a unit."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Pow | ast.LShift):
            return None
        try:
            base, power = ast.literal_eval(node.left), ast.literal_eval(node.right)
        except ValueError:
            return None
        value = base**power if isinstance(node.op, ast.Pow) else base << power
    if type(value) not in (int, float) or value not in (*BINARY, *OTHERS):
        return None
    return float(value)


def changed(source: str, site: Site) -> str:
    lines = source.splitlines(keepends=True)
    line = lines[site.line - 1].encode()
    old = line[site.begin : site.end].decode()
    new = BINARY.get(site.value, site.value * 1.05)
    text = repr(new if "." in old or "e" in old else round(new))
    lines[site.line - 1] = (line[: site.begin] + text.encode() + line[site.end :]).decode()
    return "".join(lines)


def main(words: Sequence[str]) -> int:
    split = words.index("--") if "--" in words else len(words)
    tests = [*words[split + 1 :]] or TESTS
    missed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "project")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
        if not _passes(copy, tests):
            print("the tests fail without a change: correct them first")
            return 1
        for name in words[:split]:
            path = copy / name
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                source = file.read_text()
                for site in sites(source):
                    file.write_text(changed(source, site))
                    count += 1
                    if _passes(copy, tests):
                        missed += 1
                        shown = source.splitlines()[site.line - 1].strip()
                        print(f"{file.relative_to(copy)}:{site.line}: {shown}", flush=True)
                file.write_text(source)
    print(f"{missed} of {count} constants of units were changed and nothing noticed")
    return 0


def _passes(copy: Path, tests: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
