"""Settings that another engine passes on: the texts and sizes of a record, from a document.

Does not know what a setting means; see `settings` in hicache/vllm and hicache/sglang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from hicache.core.errors import CallerError

from .address import bytes_of


def checked(
    kind: Any, given: Mapping[str, Any], where: str, sizes: Sequence[str], more: str = ""
) -> dict[str, Any]:
    """What is given for the fields of a dataclass. where, more: of the settings, and which others
    there are, for messages. sizes: fields that are bytes; their texts are read.

    Raises CallerError for a name that is not a field, and for a text or size of another form."""
    texts = {one.name: one.type in ("str", str) for one in fields(kind)}
    for name, value in given.items():
        if name not in texts:
            raise CallerError(f"{where}: expected {', '.join(texts)}{more}, found {name[:40]!a}")
        if texts[name] and not isinstance(value, str):
            raise CallerError(f"{name}: expected a text, found {value!r:.40}")
    return {
        name: bytes_of(value, name) if name in sizes else value for name, value in given.items()
    }
