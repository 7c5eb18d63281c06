"""A user's own model: the document round trip, and one line for what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from hicache.core.errors import CallerError


@pytest.mark.parametrize("name", models.names())
def test_a_document_is_the_model(name: str, tmp_path: Path) -> None:
    model = models.get(name)
    path = tmp_path / "own.json"
    path.write_text(json.dumps(models.as_document(model)))
    assert models.get(str(path)) == model
    assert models.as_document(models.get(str(path))) == models.as_document(model)


def test_fields_with_a_default_may_be_left_out(tmp_path: Path) -> None:
    found: Any = models.as_document(models.get("llama-3.1-8b"))
    needed = ("name", "component", "kind", "layers", "parts", "heads", "head_elements")
    found["pools"] = [{name: pool[name] for name in needed} for pool in found["pools"]]
    path = tmp_path / "own.json"
    path.write_text(json.dumps(found))
    assert models.get(str(path)) == models.get("llama-3.1-8b")


NOTHING = object()
WRONG: list[tuple[tuple[str | int, ...], object, str]] = [
    (("colour",), 1, "expected only name, family"),
    (("layers",), NOTHING, "layers: expected an integer from 1 to 16384, found nothing"),
    (("layers",), "61", 'layers: expected an integer from 1 to 16384, found "61"'),
    (("hidden_size",), 0, "hidden_size: expected an integer from 1 to 1048576, found 0"),
    (("name",), "\ud800", "name: expected a text of at most 2000 printable"),
    (("pools",), {}, "pools: expected a list, found {}"),
    (("pools",), [], "model deepseek-v3.2: pools: expected at least one"),
    (("pools",), [3], "pools[0]: expected an object, found 3"),
    (("pools", 0, "layers"), [99], "pool kv: layers: expected numbers below 61"),
    (("pools", 1, "anchor"), "c4", "pool indexer: anchor: expected an earlier pool"),
    (("pools", 1, "name"), "kv", "pool kv: name: expected one pool"),
    (("active_parameters",), 5, "active_parameters: expected more than"),
    (("experts",), 0, "active_parameters: expected 671877944064, as there are no experts"),
    (("experts_per_token",), 256, "experts_per_token: expected fewer than 256"),
    (("embeddings",), 3, "embeddings: expected 1 or 2"),
    (
        ("matrices", 0, "inputs"),
        0,
        "matrices[0]: matrix qkv_a: inputs: expected at least 1, found 0",
    ),
    (("matrices", 1, "name"), "qkv_a", "matrices[1].name: expected a name of its own"),
    (("matrices", 1, "layers"), 62, "matrices[1].layers: expected at most the model's 61"),
    (("matrices", 7), NOTHING, "matrices: expected 16115815168 parameters of all in all"),
    (("matrices", 11, "inputs"), 4096, "matrices: expected 2554331136 parameters of one routed"),
    (("matrices", 11, "dtype"), "nvfp4", "matrices: expected types whose bytes of one routed"),
]


@pytest.mark.parametrize(("where", "value", "said"), WRONG, ids=[said for *_, said in WRONG])
def test_a_wrong_document_is_refused_in_one_line_with_file_and_field(
    where: tuple[str | int, ...], value: object, said: str, tmp_path: Path
) -> None:
    found: Any = models.as_document(models.get("deepseek-v3.2"))
    place = found
    for step in where[:-1]:
        place = place[step]
    if value is NOTHING:
        del place[where[-1]]
    else:
        place[where[-1]] = value
    path = tmp_path / "own.json"
    path.write_text(json.dumps(found))
    with pytest.raises(CallerError) as caught:
        models.get(str(path))
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected JSON"),
        ("{", "expected JSON"),
        ("[]", "expected an object, found"),
        ('{"name": "a", "name": "b"}', "the key 'name' twice"),
        ("[" * 100_000, "expected JSON"),
    ],
)
def test_other_files_are_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(text)
    with pytest.raises(CallerError, match=said):
        models.get(str(path))
    for missing in (str(tmp_path / "none.json"), str(tmp_path) + "/"):
        with pytest.raises(CallerError):
            models.get(missing)
