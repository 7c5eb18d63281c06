"""The newest release of every extra, each tried in an environment of its own, and of the engines.

    python -m tests.newest [EXTRA ...]

Prints a table: package, newest, the bound of pyproject.toml, whether it works. Ends with 1 if one
does not. Downloads; torch is the release of constraints.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = (ROOT / "constraints.txt").read_text().strip()
TESTED = ("pytest", "pytest-benchmark", "pytest-xdist", "hypothesis")
# By extra, the extras that its tests need beside it, and the tests.
TRIED: dict[str, tuple[tuple[str, ...], str]] = {
    "transformers": (
        (),
        "tests/test_readme.py::test_the_model_of_the_readme_skips_what_it_has_read",
    ),
    "ray": ((), "tests/traces/test_sweep.py"),
    "mooncake": ((), "tests/contract/test_stores.py -k mooncake"),
    "redis": ((), "tests/contract/test_stores.py -k redis"),
    "s3": (("s3-server",), "tests/contract/test_stores.py -k s3"),
    "s3-server": (("s3",), "tests/contract/test_stores.py -k s3"),
    "text": ((), "tests/contract/test_formats.py"),
    "logs": ((), "tests/traces/test_logs.py"),
    "fit": ((), "tests/sim/test_fit.py"),
    "times": ((), "tests/sim/test_aiconfigurator.py"),
}
UNTRIED = {"torch": f"no other than {TORCH}", "cuda": "needs a GPU"}
ENGINES = {"vllm": "hicache/vllm/connector.py", "sglang": "hicache/sglang/backend.py"}


def extras() -> dict[str, list[tuple[str, str, str]]]:
    """Requirements of other projects by extra: name, [extras], bound; without those of tests."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {}
    for extra, lines in listed["optional-dependencies"].items():
        rows = [re.fullmatch(r"([\w-]+)(\[\w+\])?([^;]*).*", line) for line in lines]
        named = [(row[1], row[2] or "", row[3].strip()) for row in rows if row]
        found[extra] = [one for one in named if one[0] != "hicache"]
    return {extra: found[extra] for extra in (*TRIED, *UNTRIED)}


def newest(package: str) -> str:
    """The newest release that pip finds; "?" where it finds none."""
    words = (sys.executable, "-m", "pip", "index", "versions", package)
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    found = re.match(r"\S+ \((\S+)\)", said)
    return found[1] if found else "?"


def works(extra: str, folder: Path) -> str:
    """ "yes", "no: why", or what was left out, of the newest release of an extra's packages."""
    beside, tests = TRIED[extra]
    python = str(folder / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet")
    known = extras()
    wanted = [
        f"{name}{more}=={newest(name)}" for one in (extra, *beside) for name, more, _ in known[one]
    ]
    steps: list[Sequence[str]] = [(sys.executable, "-m", "venv", str(folder))]
    if extra == "transformers":
        steps.append((*pip, TORCH))
    steps += [
        (*pip, *TESTED, *wanted),
        (*pip, "--editable", str(ROOT)),
        (python, "-m", "pytest", "-p", "no:cacheprovider", *tests.split()),
    ]
    for step in steps:
        done = subprocess.run(step, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            return f"no: {' '.join(last)}"
    said = done.stdout.strip().splitlines()[-1]
    return "yes" if " passed" in said else f"not tried: {said}"


def rows(chosen: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Package, newest, bound, works."""
    for extra, requirements in extras().items():
        if extra in chosen:
            said = f"not tried: {UNTRIED.get(extra)}"
            if extra in TRIED:
                with tempfile.TemporaryDirectory() as folder:
                    said = works(extra, Path(folder))
            for name, _, bound in requirements:
                yield name, newest(name), bound, said
    for engine, file in ENGINES.items():
        if engine in chosen:
            [listed] = re.findall(r"^KNOWN = \((.*?)\)", (ROOT / file).read_text(), re.M | re.S)
            known, release = re.findall(r'"([\d.]+)"', listed), newest(engine)
            fits = any(f"{release}.".startswith(f"{one}.") for one in known)
            yield engine, release, ", ".join(known), "known" if fits else "no: not known"


def main() -> int:
    chosen = sys.argv[1:] or [*TRIED, *UNTRIED, *ENGINES]
    failed = False
    print(f"{'package':<34} {'newest':<12} {'bound':<26} works", flush=True)
    for package, release, bound, said in rows(chosen):
        print(f"{package:<34} {release:<12} {bound:<26} {said}", flush=True)
        failed |= said.startswith("no:")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
