"""The public trace that exact figures are tested with: where it is looked for, and what it must be.

The conversation trace of the Mooncake FAST'25 release. It is not part of the project.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

NAME = "mooncake_conversation.jsonl"
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "traces"
SHA256 = "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"
_GET_IT = (
    "download FAST25-release/traces/conversation_trace.jsonl of github.com/kvcache-ai/Mooncake and "
    "name it in HICACHE_TRACE"
)


def conversation() -> Path:
    """The path of the trace. Skips the test where there is none, and fails for another file."""
    return find(os.environ, BESIDE)


def find(environment: Mapping[str, str], beside: Path) -> Path:
    """HICACHE_TRACE names the file or its folder; without it, the trace may be in `beside`."""
    named = environment.get("HICACHE_TRACE")
    path = Path(named) if named else beside
    if path.is_dir():
        path /= NAME
    if not path.is_file():
        if named:
            pytest.fail(f"HICACHE_TRACE: expected the trace or its folder, found no file {path}")
        pytest.skip(f"no conversation trace in ../shared/traces; {_GET_IT}")
    if sha256(path.read_bytes()).hexdigest() != SHA256:
        pytest.fail(f"{path}: expected the conversation trace, found another file; {_GET_IT}")
    return path


def beside(name: str) -> Path:
    """Another public trace, a file or a folder next to this one. Skips the test where it is not."""
    path = BESIDE / name
    if not path.exists():
        pytest.skip(f"no {name} in ../shared/traces")
    return path
