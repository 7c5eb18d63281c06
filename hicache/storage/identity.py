"""What a page belongs to, beside its tokens: all that changes its rows, as the context of its key.

Two engines share the pages of a store if these are the same: the files of the weights, of the draft
and of adapters with their configurations, types, quantization, overrides, and the form of a page.
Weights may have hundreds of gigabytes, so of each file its size, its beginning (in safetensors the
names and shapes of all tensors) and a part of every megabyte are read, about 0.4 %. Another
training gives another digest; a change of a few single numbers may not, so who edits weights by
hand gives them a name (`weights`). Adapters are read whole. `changes` notices updates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from hicache.models.base import PoolDescription

from .keys import Context

_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_ADAPTER = "adapter_config.json"  # rank, alpha and the modules of a LoRA adapter, as PEFT has them
_HEAD = 1 << 20
_STEP, _PART = 1 << 20, 4096


def context_of(
    model: str, belongs: Mapping[str, Any], page_size: int, page_bytes: Mapping[str, int]
) -> Context:
    """The context of keys. model: for people. belongs: what the rows of a page follow from, beside
    their tokens. page_size: tokens. page_bytes: of a page, by pool."""
    text = json.dumps(belongs, sort_keys=True, default=str)
    pools = tuple(
        PoolDescription(
            name=name,
            component=name,
            kind="state",
            layers=(0,),
            parts=("page",),
            heads=1,
            head_elements=size,
            dtype="fp8",  # of one byte
            page_rows=1,
        )
        for name, size in page_bytes.items()
    )
    shown = "".join(one for one in model if one.isprintable())[-200:] or "model"
    return Context(shown, hashlib.sha256(text.encode()).hexdigest(), page_size, "tokens", pools)


def digest_of_weights(
    model: str, revision: str | None, folder_of: Callable[[str, str | None], str | None], what: str
) -> str:
    """A digest of the weights of a model. model: a folder, a file, or a name. folder_of: where the
    files of a model that was downloaded are. what: for messages.

    Raises CallerError if there are none, or if they cannot be read."""
    place = model if Path(model).exists() else folder_of(model, revision)
    if place is None:
        raise CallerError(
            f"{what}: expected the files of {model!a} on this machine, found none; give them a "
            'name with "weights"'
        )
    return digest_of_files(place, what)


def digest_of_adapter(place: str) -> str:
    """A digest of all that an adapter is: its files and its configuration.

    Raises CallerError if one of them is not there, or cannot be read."""
    config = Path(place) / _ADAPTER
    if not config.is_file():
        raise CallerError(f"adapter: expected {_ADAPTER} in {place!a}, found none")
    return digest_of_files(place, "adapter", [config], whole=True)


def digest_of_files(
    place: str, what: str, more: Iterable[Path] = (), *, whole: bool = False
) -> str:
    """A digest of the weights in a folder, or of one file, in hexadecimal. what: for messages.
    more: other files. whole: read everything.

    Raises CallerError if there are none, or if they cannot be read."""
    mend = "" if whole else '; give them a name with "weights"'
    try:
        files = _files(Path(place))
        if not files:
            raise CallerError(
                f"{what}: expected files of weights ({', '.join(_ENDINGS)}) in {place!a}, found "
                f"none{mend}"
            )
        digest = hashlib.sha256()
        for file in (*files, *more):
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode())
            with file.open("rb") as stream:
                for start, length in _parts(size, _STEP if whole else _PART):
                    stream.seek(start)
                    digest.update(stream.read(length))
    except OSError as error:
        raise CallerError(
            f"{what}: expected weights that can be read in {place!a}, found: {error.strerror}{mend}"
        ) from None
    return digest.hexdigest()


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(one for one in place.iterdir() if one.suffix in _ENDINGS)


def _parts(size: int, part: int) -> Iterable[tuple[int, int]]:
    yield 0, min(size, _HEAD)
    for start in range(_HEAD, size, _STEP):
        yield start, part
    yield max(0, size - _PART), _PART
