"""Runs the device contract suite on the CUDA device, with both backends, in a new process.

Needs a checkout of the project, because the suite is not installed with the package.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .base import Figure, Outcome, Settings

SUMMARY = "the contract suite of every device, over the CUDA device"

_ROOT = Path(__file__).resolve().parents[3]
_SUITE = "tests/contract/test_devices.py"
_NAMES = "cuda-direct or cuda-kernel"


def run(settings: Settings) -> Outcome:
    if not (_ROOT / _SUITE).is_file():
        return Outcome([], [f"expected a checkout with {_SUITE}, found none; run it from one"])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", _SUITE, "-k", _NAMES, "-p", "no:cacheprovider"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    passed = re.search(r"(\d+) passed", done.stdout)
    faults = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if done.returncode and not faults:
        faults = [f"pytest ended with {done.returncode}: {(lines or ['no output'])[-1]}"]
    if "skipped" in done.stdout:
        faults.append(f"tests were skipped: {(lines or [''])[-1]}")
    return Outcome([Figure("tests passed", int(passed[1]) if passed else 0, "", 1)], faults)
