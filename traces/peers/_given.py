"""Options that several actions have, and what they mean."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hicache.core.errors import CallerError, unknown

FOLDER_HELP = (
    "the folder that has all environments (default: hicache/peers in XDG_CACHE_HOME or ~/.cache)"
)
SOURCE_HELP = "run this checkout of the engine, which hicache peers fetch --source prepared"


def setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE of a peer's configuration."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(
            f"expected KEY=VALUE, such as page=4, found {text!r}; see hicache peers fuzz NAME "
            "--config help=1"
        )
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def configured(
    peer: str, given: tuple[tuple[str, Any], ...], takes: dict[str, list[Any]]
) -> dict[str, Any]:
    """The fixed part of a configuration. Raises CallerError for what the peer does not take."""
    fixed: dict[str, Any] = {}
    for key, value in given:
        if key not in takes:
            raise unknown(f"setting of {peer}", key, list(takes))
        values = takes[key]
        if values and value not in values:
            raise unknown(f"{key} of {peer}", str(value), [str(one) for one in values])
        if not values and (type(value) is not int or value < 0):
            raise CallerError(f"{peer}: {key}: expected a whole number, found {value!r}")
        fixed[key] = value
    return fixed
