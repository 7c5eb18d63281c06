"""The copy kernel without a GPU: its results by Triton's interpreter, its accesses by its compiler.

Speed is measured only on a GPU (docs/devices.md).
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def run(*arguments: str, **environment: str) -> str:
    """What another Python of this environment says. Fails with its output where it fails."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**given, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_triton
def test_copies_are_exact_under_the_interpreter() -> None:
    said = run("-m", "pytest", "tests/devices/interpreted.py", TRITON_INTERPRET="1")
    assert re.search(r"\d passed", said)
    assert "skipped" not in said


@needs_triton
def test_compiled_for_hopper_every_access_of_aligned_pages_has_16_bytes() -> None:
    """One row per case: which accesses to global memory the compiled kernel makes.

    584 is 8 x 73, so every other page of one such row begins at an address that is no multiple of
    16. A single access of 16 bytes there would be a misaligned address.
    """
    compiler, *said = run("-m", "tests.devices.compiled", TRITON_DEFAULT_FP_FUSION="1").splitlines()
    assert compiler == f"triton {version('triton')}", "the installed one is what compiles"
    found = {line.split(": ")[0]: line.split(": ")[1].split() for line in said}
    wide = ["ld.global.b64", "ld.global.v2.b64", "st.global.v2.b64"]
    assert found == {
        "llama-3.1-8b page_first_direct": wide,
        "llama-3.1-8b page_first": wide,
        "llama-3.1-8b page_head": wide,
        "deepseek-v3 page_first": wide,
        "rows of 584 bytes, 16 a page": wide,
        "rows of 584 bytes, 2 a page": wide,
        "rows of 584 bytes, 1 a page": ["ld.global.b64", "st.global.b64"],
        "rows of 12 bytes": ["ld.global.b32", "ld.global.b64", "st.global.b32"],
    }
