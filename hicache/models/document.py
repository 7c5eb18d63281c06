"""A model in a file: a `config.json`, or every field of the records of `base` under its name.

`as_document` writes every field. `read` accepts exactly these fields, but a field that has a
default may be left out; a file without `pools` is a `config.json` (see `config`).
"""

from __future__ import annotations

import os
from dataclasses import fields
from math import ceil
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import FLAG, Record, Value, fit, parsed, text_of, unlike, whole

from .base import Matrix, ModelDescription, PoolDescription
from .config import described
from .weights import WEIGHT_BITS

_MOST_BYTES = 16 << 20
_MOST_TEXT = 2000  # characters
# The largest number of each field, far above every model; products of them stay exact in 64 bits.
_MOST = {
    "layers": 1 << 14,
    "parameters": 1 << 50,
    "active_parameters": 1 << 50,
    "weight_bytes": 1 << 53,
    "expert_bytes": 1 << 53,
    "vocabulary": 1 << 24,
    "head_elements": 1 << 24,
    "window": 1 << 32,
    "inputs": 1 << 24,
    "outputs": 1 << 24,
    "selected_tokens": 1 << 32,
    "interval": 1 << 32,
}
_MOST_OTHERS = 1 << 20
_LEAST = {"experts": 0, "experts_per_token": 0, "expert_bytes": 0, "selected_tokens": 0}
_TEXT = Value(
    f"a text of at most {_MOST_TEXT} printable characters",
    lambda value: isinstance(value, str) and value.isprintable() and len(value) <= _MOST_TEXT,
)
_PART: dict[str, Any] = {
    **{name: whole(0, most) for name, most in _MOST.items()},
    "str": _TEXT,
    "int": whole(0, _MOST_OTHERS),
    "bool": FLAG,
    "tuple[str, ...]": [_TEXT],
}
SHAPE = Record(
    ModelDescription,
    {
        **{
            one.name: whole(_LEAST.get(one.name, 1), _MOST.get(one.name, _MOST_OTHERS))
            for one in fields(ModelDescription)
            if one.type == "int"
        },
        "str": _TEXT,
        "pools": [Record(PoolDescription, {**_PART, "layers": [whole(0, _MOST["layers"])]})],
        "matrices": [Record(Matrix, _PART)],
    },
)
_REST = 50  # at most this part of the parameters is in no matrix, or of the bytes in another type


def is_path(name: str) -> bool:
    """Whether a model's name is the path of a file."""
    return name.endswith(".json") or "/" in name


def as_document(model: ModelDescription) -> dict[str, Any]:
    """The document of a model. `read` makes the same model of it."""
    return {
        **_record(model),
        "pools": [_record(pool) for pool in model.pools],
        "matrices": [_record(matrix) for matrix in model.matrices],
    }


def _record(record: ModelDescription | PoolDescription | Matrix) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def read(path: str) -> ModelDescription:
    """The model in a file, or in the `config.json` of a folder. Raises CallerError with one line:
    file, field, expected, found."""
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    try:
        found = parsed(text_of(path, "model's JSON file", _MOST_BYTES))
    except ValueError as error:
        raise CallerError(f"{path}: expected JSON, found: {error}") from None
    if isinstance(found, dict) and "pools" not in found:
        return described(found, _name(path), path)
    model: ModelDescription = fit(found, SHAPE, path)
    try:
        _check_parameters(model)
        _check_matrices(model)
    except CallerError as error:
        raise CallerError(f"{path}: {error}") from None
    return model


def _name(path: str) -> str:
    """The name of the file, or of its folder, where that is a word to print."""
    folder, file = os.path.split(os.path.abspath(path))
    name = os.path.basename(folder) if file == "config.json" else file.removesuffix(".json")
    return name if name and name.isprintable() and len(name) <= _MOST_TEXT else "config"


def _check_parameters(model: ModelDescription) -> None:
    """Check the relations between fields that a cost model needs. Raises CallerError."""
    for name, fine, expected in (
        ("embeddings", model.embeddings <= 2, "1 or 2"),
        (
            "active_parameters",
            model.layer_parameters > 0 and model.active_parameters <= model.parameters,
            f"more than the embeddings' {model.embeddings * model.head_parameters} and at most "
            f"{model.parameters}",
        ),
        (
            "active_parameters",
            bool(model.experts) or model.active_parameters == model.parameters,
            f"{model.parameters}, as there are no experts",
        ),
        (
            "experts_per_token",
            model.experts_per_token < model.experts or not model.experts_per_token,
            f"fewer than {model.experts} experts",
        ),
        (
            "weight_bytes",
            model.parameters <= 8 * model.weight_bytes <= 64 * model.parameters,
            f"the bytes of all {model.parameters} stored parameters",
        ),
        (
            "expert_bytes",
            bool(model.experts) == bool(model.expert_bytes) and model.layer_bytes > 0,
            "the bytes of one routed expert in all layers, which with the embeddings' "
            f"{model.embeddings * model.head_bytes} leave some of the weights' {model.weight_bytes}"
            if model.experts
            else "0, as there are no experts, and more weights than the embeddings' "
            f"{model.embeddings * model.head_bytes} bytes",
        ),
    ):
        if not fine:
            raise _wrong(name, expected, getattr(model, name))


def _check_matrices(model: ModelDescription) -> None:
    """Check that the matrices, if they are listed, are those of the model. Raises CallerError."""
    names = [matrix.name for matrix in model.matrices]
    for place, matrix in enumerate(model.matrices):
        where = f"matrices[{place}]."
        if matrix.name in names[:place]:
            raise _wrong(f"{where}name", "a name of its own", matrix.name)
        if matrix.layers > model.layers:
            raise _wrong(f"{where}layers", f"at most the model's {model.layers}", matrix.layers)
        if matrix.routed and not model.experts:
            raise _wrong(f"{where}part", "a part of a model without experts", matrix.part)
    if not model.matrices:
        return
    routed = model.experts_per_token * model.expert_parameters
    for which, routes, parameters, count in (
        ("all", False, model.layer_parameters - routed, model.layer_bytes),
        ("one routed expert", True, model.expert_parameters, model.expert_bytes),
    ):
        mine = [matrix for matrix in model.matrices if matrix.routed == routes]
        sizes = [matrix.layers * matrix.parameters for matrix in mine]
        rest = parameters - sum(sizes)
        if not 0 <= _REST * rest <= parameters:
            raise _wrong(
                "matrices",
                f"{parameters} parameters of {which} in all layers, or up to a {_REST}th less "
                "(norms, biases)",
                sum(sizes),
            )
        bits = (size * WEIGHT_BITS[one.dtype] for size, one in zip(sizes, mine, strict=True))
        held = ceil((sum(bits) + rest * WEIGHT_BITS["bf16"]) / 8)
        if abs(held - count) * _REST > count:
            raise _wrong("matrices", f"types whose bytes of {which} are about {count}", held)


def _wrong(where: str, expected: str, value: object) -> CallerError:
    return unlike(where, expected, str(value))
