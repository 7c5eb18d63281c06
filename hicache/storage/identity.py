"""What a page belongs to, beside its tokens: all that changes its rows, as the context of its key.

Two engines share the pages of a store if these are the same: the files of the weights, of the draft
and of adapters with their configurations, types, quantization, overrides, and the form of a page.
Weights may have hundreds of gigabytes, so safetensors are read in part: the header, and of every
tensor up to 128 KiB all, else 32 places or more, at most 1 MiB apart, of 4 KiB, its ends among
them. A tensor trained throughout gives another digest, a bias alone also. A change in a large
tensor that lies between these places (few numbers, few rows of an embedding) does not: then give
the weights a name (`weights`). Other files are read whole: GGUF, torch's, adapters. `changes`
notices updates.
"""

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from hicache import clock
from hicache.core.errors import CallerError
from hicache.models.base import PoolDescription

from .keys import Context

_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_ADAPTER = "adapter_config.json"  # rank, alpha and the modules of a LoRA adapter, as PEFT has them
_HEAD = 8 << 20  # at most, of a header or directory: some 70,000 tensors, 0.3 GB as objects
_STEP, _SPOTS, _SPOT = 1 << 20, 32, 4096
_SMALL = _SPOTS * _SPOT  # a tensor that is read whole
# Load formats that read the files of the model's folder, and no weights from elsewhere ("npcache"
# reads copies that engines made of these files once, also when the files were replaced since).
_READ = {
    *("auto", "hf", "safetensors", "fastsafetensors", "instanttensor", "pt", "mistral"),
    *("gguf", "bitsandbytes", "layered", "sharded_state", "runai_streamer"),
    "runai_streamer_sharded",
}
_BAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
    shown = "".join(item for item in model if item.isprintable())[-200:] or "model"
    return Context(shown, hashlib.sha256(text.encode()).hexdigest(), page_size, "tokens", pools)


def release_of(engine: str) -> str:
    """The release of an engine that runs in this process: another one may compute other rows."""
    return str(getattr(sys.modules.get(engine), "__version__", ""))


def fields_of(config: Any, counts: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
    """The fields of an engine's configuration in a form that is the same in every process. counts:
    whether a field of this name changes rows."""
    names = [field.name for field in fields(config)] if is_dataclass(config) else vars(config)
    return {name: _plain(getattr(config, name, None)) for name in names if counts(name)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_plain(item), sort_keys=True) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    if hasattr(value, "__qualname__"):  # a function or a class
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def downloaded(model: str, revision: str | None) -> str | None:
    """The folder of a model of Hugging Face on this machine, if it is there."""
    try:
        hub: Any = import_module("huggingface_hub")
        return str(hub.snapshot_download(model, revision=revision, local_files_only=True))
    except (ImportError, OSError, ValueError):
        return None


def place_of(model: str, revision: str | None) -> str | None:
    """Where the files of a model are, a folder, a file, or a name; None if they are not here."""
    return model if Path(model).exists() else downloaded(model, revision)


def digest_of_weights(model: str, revision: str | None, what: str, form: str, seed: object) -> str:
    """What the weights of a model are called in keys: a digest of their files. what: for messages.
    form: the engine's load format. seed: of dummy weights.

    Raises CallerError if there are none, or if they cannot be read, or if a process that an engine
    has started has perhaps loaded others, since they were written later, or from elsewhere."""
    if form == "dummy":
        return f"dummy weights of seed {seed}"
    if form not in _READ:
        raise CallerError(
            f"{what}: expected a load format that reads the model's files, found {form!a:.60}; "
            'give them a name with "weights"'
        )
    place = place_of(model, revision)
    if place is None:
        raise CallerError(
            f"{what}: expected the files of {model!a} on this machine, found none; give them a "
            'name with "weights"'
        )
    return digest_of_files(place, what, until_s=clock.started_s() if place == model else math.inf)


def code_of(
    config: Mapping[str, Any], model: str, revision: str | None, code_revision: str | None = None
) -> list[str]:
    """Digests of the code that came with a model, if its configuration has transformers import some
    (`auto_map`, "MODULE.CLASS" or "REPOSITORY--MODULE.CLASS"). code_revision: of another repository
    than the model's. See `digest_of_weights`."""
    if not config.get("auto_map"):
        return []
    named = sorted(set(re.findall(r'"([^"]+)--', json.dumps(config["auto_map"], default=str))))
    result = []
    for item, its in (
        (model, code_revision or revision),
        *((item, code_revision) for item in named),
    ):
        place = place_of(item, its)
        digest = hashlib.sha256()
        for file in sorted(Path(place).glob("*.py")) if place else ():
            code = file.read_bytes()
            digest.update(f"{file.name}\0{len(code)}\0".encode() + code)
        result.append(digest.hexdigest())
    return result


def code_of_modules(models: Iterable[Any], engine: str) -> list[str]:
    """Digests of the code of models' modules that is neither the engine's own, by the name of its
    package, nor torch's: a plugin may have put it in the place of the engine's."""
    own = {*sys.stdlib_module_names, "torch", engine}
    kinds = {
        kind for model in models for module in model.modules() for kind in type(module).__mro__
    }
    result = set()
    for kind in kinds:
        if kind.__module__.partition(".")[0] not in own:
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            code = Path(file).read_bytes() if file else b""
            result.add(f"{kind.__qualname__} {hashlib.sha256(code).hexdigest()}")
    return sorted(result)


def digest_of_adapter(place: str, until_s: float = math.inf) -> str:
    """A digest of all that an adapter is: its files and its configuration. until_s: as below.

    Raises CallerError if one of them is not there, cannot be read, or was written later."""
    if not (Path(place) / _ADAPTER).is_file():
        raise CallerError(f"adapter: expected {_ADAPTER} in {place!a}, found none")
    return digest_of_files(place, "adapter", full=True, until_s=until_s)


def digest_of_files(place: str, what: str, *, full: bool = False, until_s: float = math.inf) -> str:
    """A digest of the weights in a folder, or of one file, in hexadecimal. what: for messages.
    full: read everything, also an adapter's configuration. until_s: seconds since 1970.

    Raises CallerError if there are none, if they cannot be read, or were written after until_s."""
    mend = "" if full else '; give them a name with "weights"'
    try:
        files = [Path(place)]
        if not files[0].is_file():
            files = sorted(path for path in files[0].iterdir() if path.suffix in _ENDINGS)
        if not files:
            raise CallerError(
                f"{what}: expected files of weights ({', '.join(_ENDINGS)}) in {place!a}, found "
                f"none{mend}"
            )
        files += sorted(Path(place).glob("*.index.json"))  # they say which files engines load
        files += [Path(place) / _ADAPTER] if full else []
        digest = hashlib.sha256()
        for file in files:
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode())
            with open(file, "rb", _SPOT) as stream:
                head, starts = (b"", []) if full else _tensors(stream)
                digest.update(head)
                for start, length in _parts(size, starts):
                    stream.seek(start)
                    digest.update(stream.read(length))
            if file.stat().st_ctime > until_s:
                raise CallerError(
                    f"{what}: expected files that are older than this process, which may have "
                    f"loaded others, found that {str(file)!a} was written since; start again{mend}"
                )
    except OSError as error:
        raise CallerError(
            f"{what}: expected weights that can be read in {place!a}, found: {error.strerror}{mend}"
        ) from None
    return digest.hexdigest()


def _tensors(stream: BinaryIO) -> tuple[bytes, list[int]]:
    """The header of safetensors, and where the tensors begin; nothing of another form, or if the
    header is longer than 8 MiB."""
    length = int.from_bytes(stream.read(8), "little")
    head = stream.read(min(length, _HEAD))
    try:
        tensors = [load for name, load in json.loads(head).items() if name != "__metadata__"]
        return head, [
            8 + length,
            *(8 + length + int(tensor["data_offsets"][0]) for tensor in tensors),
        ]
    except _BAD:
        return b"", []


def _parts(size: int, starts: list[int]) -> Iterator[tuple[int, int]]:
    """Beginnings and lengths of what is read, all of it without tensors. However these lie, no byte
    is in two."""
    if not starts:
        yield from ((at, _STEP) for at in range(0, size, _STEP))
        return
    for start, end in pairwise(sorted({0, *(at for at in starts if 0 < at < size), size})):
        length = end - start
        if length <= _SMALL:
            yield start, length
            continue
        spots = max(_SPOTS, length // _STEP + 2)
        yield from (
            (start + (length - _SPOT) * index // (spots - 1), _SPOT) for index in range(spots)
        )
