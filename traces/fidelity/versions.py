"""Which version of an engine ran a row: the one that it names, else the one of its date.

Does not know what versions change (see sim/engine_profiles).
"""

from __future__ import annotations

import re

from . import names
from .rows import Row

# The versions of public images, with the month from which runs use them.
_RELEASES = {
    "vllm": (
        ("2024-07", "0.6.0"),
        ("2025-01", "0.7.3"),
        ("2025-04", "0.8.0"),
        ("2025-09", "0.10.2"),
        ("2025-11", "0.11.2"),
        ("2025-12", "0.12.0"),
        ("2026-01", "0.14.0"),
        ("2026-02", "0.15.1"),
        ("2026-03", "0.18.0"),
        ("2026-04", "0.20.1"),
    ),
    "sglang": (
        ("2024-07", "0.4.0"),
        ("2025-08", "0.5.1"),
        ("2025-11", "0.5.6"),
        ("2026-02", "0.5.9"),
    ),
    "trtllm": (
        ("2024-01", "0.14.0"),
        ("2025-05", "0.20"),
        ("2025-08", "1.0.0rc3"),
        ("2025-10", "1.1.0rc2.post2"),
        ("2025-12", "1.2.0rc2"),
        ("2026-02", "1.2.0rc6"),
        ("2026-03", "1.3.0rc1"),
    ),
}
# NIM counts its own versions; these TensorRT-LLM releases are of the same months.
_NIM = {"1.3": "0.14.0", "1.8": "0.20"}
_DATE = re.compile(r"(20\d\d)-?(\d\d)")


def engine_of(row: Row) -> tuple[str, str]:
    """(what names the engine profile, such as vllm@0.12.0, and the assumption behind it).

    The assumption is empty where the row names a version.
    """
    text = row.engine_version
    if "NIM" in text.upper():
        number = ".".join(str(part) for part in names.version(text)[:2])
        version = _NIM.get(number, "")
        if version:
            return f"{row.engine}@{version}", f"NIM {number} serves with TensorRT-LLM {version}"
    elif names.version(text):
        found = re.search(r"\d+\.\d[\w.]*", text)
        assert found, "a version has numbers"
        return f"{row.engine}@{found[0].rstrip('.x')}", ""
    date = _DATE.search(text) or _DATE.search(row.date)
    releases = _RELEASES.get(row.engine, ())
    if date and releases:
        month = f"{date[1]}-{date[2]}"
        earlier = [version for since, version in releases if since <= month]
        version = earlier[-1] if earlier else releases[0][1]
        return f"{row.engine}@{version}", f"{row.engine} {version}, by the date {month}"
    return row.engine, f"the newest known version of {row.engine}"
