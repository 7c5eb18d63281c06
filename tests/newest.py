"""The newest release of every extra, all in one new environment.

    python -m tests.newest

Prints each package with its newest release and the bound of pyproject.toml, and runs the tests of
the extras. Ends with 1 if one fails. Downloads; torch is the release of constraints.txt.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = (ROOT / "constraints.txt").read_text().strip()
UNTRIED = {"test", "torch", "cuda"}
TESTS = (
    "tests/test_docs.py",
    "tests/contract/test_stores.py",
    "tests/contract/test_formats.py",
    "tests/golden/test_machines.py",
    "tests/traces/test_logs.py",
    "tests/sim/test_fit.py",
    "tests/sim/test_aiconfigurator.py",
)


def required() -> dict[str, str]:
    """Packages of the extras, such as `redis[hiredis]`, with their bounds."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    result = {}
    for extra, lines in listed["optional-dependencies"].items():
        for line in lines if extra not in UNTRIED else ():
            name, bound = re.findall(r"^([\w-]+(?:\[[\w,-]+\])?)([^;]*)", line)[0]
            result |= {} if name.startswith("hicache") else {name: bound.strip()}
    return result


def newest(package: str) -> str:
    """The newest release that pip finds; "?" where it finds none."""
    words = (sys.executable, "-m", "pip", "index", "versions", package)
    printed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    match = re.match(r"\S+ \((\S+)\)", printed)
    return match[1] if match else "?"


def main() -> int:
    packages = required()
    releases = {name: newest(name.partition("[")[0]) for name in packages}
    for name, release in releases.items():
        print(f"{name:<34} {release:<12} {packages[name]}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        pip = (python, "-m", "pip", "install", "--quiet")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([*pip, TORCH], check=True)
        subprocess.run([*pip, "pytest", "pytest-benchmark", "hypothesis", "-e", ROOT], check=True)
        wanted = [f"{name}=={release}" for name, release in releases.items()]
        subprocess.run([*pip, *wanted], check=True)
        words = (python, "-m", "pytest", "-p", "no:cacheprovider", *TESTS)
        return subprocess.run(words, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
