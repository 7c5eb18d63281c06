"""Where a checkout has the measurements and the public traces, if nobody says it.

Both lie in a folder `shared` beside the checkout. Does not read them.
"""

from __future__ import annotations

import os
from pathlib import Path

DATA, TRACES = "HICACHE_PUBLISHED", "HICACHE_TRACES"
_BESIDE = Path(__file__).resolve().parents[3] / "shared"


def data_folder(named: str | None) -> Path:
    """The folder or file of the measurements: as named, of the environment, or beside."""
    return Path(named or os.environ.get(DATA) or _BESIDE / "published")


def trace_folder() -> Path:
    """The folder of public traces: of the environment, or beside."""
    return Path(os.environ.get(TRACES) or _BESIDE / "traces")
