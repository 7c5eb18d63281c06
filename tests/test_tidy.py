"""Imports point one way, the core is pure, and no file is dead or speaks of a machine."""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("hicache", "sim", "invariants", "traces")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PATTERNS = ("*.py", "*.md", "*.toml", "*.txt", "Makefile", ".ci/run", "docs/*.*")
TEXTS = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
TEXTS += [path for pattern in PATTERNS for path in ROOT.glob(pattern)]

# What each may import of the project beside itself. The specification and the checks must borrow
# nothing that they judge.
ALLOWED: dict[str, tuple[str, ...]] = {
    "hicache.core": (),
    "hicache": (),
    "sim": ("hicache",),
    "invariants": ("hicache", "sim"),
    "invariants.spec": tuple(f"hicache.core.{x}" for x in ("actions", "config", "events", "types")),
    "traces": ("hicache", "sim", "invariants"),
    "hicache.__main__": ("traces.start",),
}
# Folders of plugins, which are found by their names.
REGISTRIES = {
    "hicache.devices",
    "hicache.storage.backends",
    "hicache.storage.engines",
    "sim.times",
    "invariants.checks",
    "invariants.fuzz.targets",
    "traces.commands",
}
# What only the core's own modules may see: checks must not borrow the code that they check.
CORE_INTERNALS = {
    f"hicache.core.{name}"
    for name in (
        *("admission", "core", "eviction", "transfers", "insertion", "placement", "prefetch"),
        *("requests", "pins", "stores", "tree"),
    )
}
IMPURE = {"torch", "simpy", "time", "random", "threading", "asyncio", "os", "logging", "datetime"}
CLOCKS = {"time", "random", "uuid", "secrets", "datetime"}
CLOCK = "hicache.clock"  # of what runs in a program of somebody else


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = set(map(module_of, SOURCES))


@cache
def imports_of(path: Path) -> set[str]:
    """Every module that the file imports, relative imports resolved."""
    own, result = module_of(path).split("."), set()
    package = own if path.stem == "__init__" else own[:-1]
    nodes: list[ast.AST] = [tree_of(path)]
    while nodes:  # statements alone, since most nodes are expressions
        node = nodes.pop()
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            nodes += getattr(node, inner, ())
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            result |= {name if name in MODULES else source for name in names}
    return result


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """Trees are kept, and to look at them again takes longer than to make them."""
    gc.disable()
    yield
    gc.enable()


def place_of(module: str) -> str:
    return max(
        (place for place in ALLOWED if module == place or module.startswith(place + ".")),
        key=len,
        default=module,
    )


def test_ci_names_tests_that_exist() -> None:
    named = re.findall(r"tests/[\w/.]+", (ROOT / ".ci/run").read_text())
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_imports_point_one_way() -> None:
    wrong = []
    for path in SOURCES:
        module = module_of(path)
        place = place_of(module)
        for target in imports_of(path):
            if target.split(".")[0] not in PACKAGES:
                continue
            allowed = (place, *ALLOWED[place])
            if not any(target == item or target.startswith(item + ".") for item in allowed):
                wrong.append(f"{module} imports {target}; {place} may import {allowed}")
            if place == "invariants" and "fuzz" not in module and target in CORE_INTERNALS:
                wrong.append(f"{module} borrows {target}, which it checks")
    assert not wrong, "\n".join(wrong)


def test_the_core_is_pure_and_only_the_cli_reads_a_clock() -> None:
    wrong = []
    for path in SOURCES:
        module = module_of(path)
        roots = {target.split(".")[0] for target in imports_of(path)}
        if module.startswith("hicache.core"):
            wrong += [f"{module} imports {root}" for root in roots & IMPURE]
        if module.startswith(("hicache", "sim", "invariants.checks")) and module != CLOCK:
            wrong += [f"{module} imports {root}" for root in roots & CLOCKS]
        if module.startswith(("hicache.core", "sim")):
            wrong += [
                f"{path}:{node.lineno} calls {node.func.id}"
                for node in ast.walk(tree_of(path))
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"id", "hash", "eval", "exec"}
            ]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_form_no_circle(package: str) -> None:
    """A folder right below the package, or a file that stands there alone."""

    def folder_of(module: str) -> str:
        return ".".join(module.split(".")[:2])

    folders: dict[str, set[str]] = {}
    for path in SOURCES:
        folder = folder_of(module_of(path))
        if folder.startswith(f"{package}."):
            used = {folder_of(target) for target in imports_of(path) if target in MODULES}
            folders.setdefault(folder, set()).update(used - {folder, package})
    try:
        TopologicalSorter(folders).prepare()
    except CycleError as error:
        pytest.fail(f"folders import each other: {' <- '.join(error.args[1])}")


def test_no_file_is_dead() -> None:
    """Every module is imported somewhere, or is a plugin that a registry finds by its name."""
    stubs = sorted((ROOT / "hicache").rglob("*.pyi"))
    everyone = [*SOURCES, *stubs, *sorted((ROOT / "tests").rglob("*.py"))]
    imported = {target for path in everyone for target in imports_of(path)}
    entry_points = {"traces.__main__", "hicache.__main__", "hicache.compiled.building"}
    entry_points |= {"sim.fit.__main__"}  # a script
    entry_points |= {"invariants.fuzz.child"}  # a process of its own
    entry_points |= {"hicache.vllm.connector"}  # by name, as it needs vLLM
    dead = [
        module
        for module in map(module_of, SOURCES)
        if module not in imported | entry_points
        and module.rpartition(".")[0] not in REGISTRIES
        and not any(other.startswith(module + ".") for other in map(module_of, SOURCES))
    ]
    assert not dead


def test_texts_contain_no_machine_paths_or_leftover_marks() -> None:
    marks = {
        r"\bDoes n" r"ot\b": "what a thing is not",
        r"(?<![\w.])/(work|farm|root|home)/": "a path of one machine",
        r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b": "a left-over mark",
        r"(extra-)?index-" r"url|find-" r"links": "a package source",
    }
    result = [
        f"{path}: {what}"
        for path in TEXTS
        for mark, what in marks.items()
        if re.search(mark, path.read_text(errors="replace"))
    ]
    assert not result


def test_only_the_driver_calls_the_core() -> None:
    callers = [
        module_of(path)
        for path in SOURCES
        if re.search(r"\bcore\.handle\(", path.read_text())
        and not module_of(path).startswith("hicache.core")
    ]
    assert callers == ["hicache.runtime.driver"]


# Words of our own for things that the field has a word for, and words that name no thing.
OWN_WORDS = re.compile(
    "ballast|begins_anew|book|comes|desk|flight|give_up_host|goes_on|hand|heal|is_to_start|lane|leg|"
    "let_go|mirror|mover|needs_more|now_older|pins_take_hold|scribble|shelf|swarm|tape|ticket|twins|"
    "waits_no_longer|watch|against|garbage|judged|asked|found|held|one|said|told|crossed|deciding|"
    "fidelity|flips|following|half|halves|lent|painter|passing|peer|pictures|rival|room|rooms|sure|verified|whole"
)


def test_names_are_words_of_the_field() -> None:
    own = set()
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            names = [getattr(node, key, None) for key in ("id", "arg", "attr", "name", "asname")]
            words = {name.strip("_").lower() for name in names if isinstance(name, str)}
            own |= {f"{path.relative_to(ROOT)}: {w}" for w in words if OWN_WORDS.fullmatch(w)}
    assert not own
