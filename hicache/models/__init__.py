"""Models as data: those of `known.json`, which are configurations of published models, and any
`config.json` of the library transformers, or the folder that has it (see `config`)."""

import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

from hicache import registry
from hicache.core.errors import CallerError
from hicache.files import parsed, show, text_of, unlike

from .base import Matrix, ModelDescription, PoolDescription
from .config import described
from .weights import KV_DTYPES, PRECISIONS, WEIGHT_BITS, as_hybrid, cached_as, checkpoint, stored

__all__ = [
    "KV_DTYPES",
    "PRECISIONS",
    "TINY",
    "WEIGHT_BITS",
    "Matrix",
    "ModelDescription",
    "PoolDescription",
    "as_hybrid",
    "cached_as",
    "checkpoint",
    "described",
    "get",
    "is_path",
    "names",
    "stored",
]

_MOST_BYTES = 16 << 20
# One token has 2 KiB: quick to copy in measurements on any machine.
TINY = described(
    {
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "vocab_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 352,
    },
    "tiny",
    "tiny",
    "made up: small enough for any machine",
    (2_000_000, 2_000_000),
)


@cache
def _by_name() -> dict[str, ModelDescription]:
    known = json.loads(Path(__file__).with_name("known.json").read_text())
    models = {
        name: described(
            entry["config"], name, name, entry["source"], tuple(entry.get("parameters", ())) or None
        )
        for name, entry in known.items()
        if "config" in entry
    }
    for name, entry in known.items():
        if "draft_of" in entry:
            models[name] = _with_draft(models[entry["draft_of"]], name, **entry)
    return models


def _with_draft(
    model: ModelDescription, name: str, draft_of: str, draft_layers: int, source: str
) -> ModelDescription:
    """The model with a draft module (EAGLE, MTP): layers after its own with the same rows, which
    must be copied with the model's pages. The draft's computation is not counted."""
    [kv] = model.pools
    layers = tuple(range(model.layers, model.layers + draft_layers))
    return replace(
        model,
        name=name,
        family="draft",
        source=f"{model.source}; {source}",
        layers=model.layers + draft_layers,
        pools=(kv, replace(kv, name="draft", anchor=kv.name, layers=layers)),
    )


def names() -> list[str]:
    """The names of all published models, sorted. `TINY` is known too, but made up."""
    return sorted(_by_name())


def get(name: str) -> ModelDescription:
    """The model with this name, the beginning of one name, or path. Raises CallerError for a name
    that is unknown or the beginning of several, and lists those that are meant."""
    if is_path(name) and (name.endswith(".json") or os.path.exists(name)):
        return _read(name)
    known, lower = {**_by_name(), TINY.name: TINY}, name.rpartition("/")[2].lower()
    longer = [each for each in known if each.startswith(f"{name.lower()}-")]
    if name.lower() in known or len(longer) == 1:
        return known.get(name.lower()) or known[longer[0]]
    meant = [each for each in sorted(known) if name and each.startswith(lower)]
    inside = max((each for each in known if each in lower), key=len, default="")
    hint = f"; did you mean {inside or ' or '.join(meant)}?" if inside or meant else ""
    raise CallerError(
        f"model: expected one of {', '.join(sorted(known))}, or a config.json or its folder, found "
        f"{name!r}{hint or registry.closest(lower, list(known))}"
    )


def is_path(name: str) -> bool:
    """Whether a model's name is the path of a file."""
    return name.endswith(".json") or "/" in name


def _read(path: str) -> ModelDescription:
    """The model of a `config.json` or its folder, named after the file or the folder."""
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    try:
        values = parsed(text_of(path, "model's JSON file", _MOST_BYTES))
    except ValueError as error:
        raise CallerError(f"{path}: expected JSON, found: {error}") from None
    if not isinstance(values, dict):
        raise unlike(path, "an object", show(values))
    folder, file = os.path.split(os.path.abspath(path))
    name = os.path.basename(folder) if file == "config.json" else file.removesuffix(".json")
    try:
        return described(values, name if name and name.isprintable() else "config", path)
    except CallerError as error:
        raise CallerError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
