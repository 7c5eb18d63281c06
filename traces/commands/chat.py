"""`hicache chat`: a conversation with a local model, whose prefix is cached on disk, too.

Does not load or run the model; see traces/chatting.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache import registry, transformers
from hicache.core.errors import CallerError
from hicache.version import VERSION

from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.rows import option

SUMMARY = "talk with a model from a local folder; what it has read is not computed again"
GROUP = "use"
_CHATTING = "traces.chatting"
_NONE = "none"
_STORE_BYTES = 20_000_000_000  # of the default store
_DTYPES = ("auto", "fp32", "bf16", "fp16")
_ATTENTIONS = ("auto", "eager", "sdpa")


@dataclass(frozen=True)
class Options(OptionRecord):
    folder: str = option(
        "a folder with a model of transformers: config.json, a tokenizer and *.safetensors",
        read.name,
        "MODEL_FOLDER",
        positional=True,
    )
    once: str | None = option("ask this, print the answer and end", str, "TEXT")
    device_tokens: int = option(
        "tokens that are kept where the model is", *read.COUNT, default=8192
    )
    host_tokens: int = option(
        "tokens that host memory has room for", *read.COUNT_OR_0, default=65536
    )
    storage: str | None = option(
        "store that outlives the program, such as file:DIR, or none (default: a folder of at "
        "most 20 GB below the user's cache folder)",
        str,
        "ADDRESS",
    )
    max_new_tokens: int = option("the longest answer", *read.COUNT, default=256)
    dtype: str = option(", ".join(_DTYPES), read.choice(_DTYPES), default="auto")
    attention: str = option(", ".join(_ATTENTIONS), read.choice(_ATTENTIONS), default="auto")
    json: str | None = option(
        "also write what each answer took to this file as JSON; - is stdout, and answers then "
        "go to stderr",
        *read.OUTPUT,
    )


def run(options: Options, command: str) -> int:
    check_outputs({}, json=options.json)
    make_cache: Any = transformers.PrefixCache  # raises if the library is not installed
    talking = registry.load(_CHATTING, "talking")
    model, tokenizer = talking.load(options.folder, options.dtype, options.attention)
    address, room = _store(options.storage)
    with make_cache(
        model,
        device_tokens=options.device_tokens,
        host_tokens=options.host_tokens,
        storage=address,
        storage_bytes=room,
    ) as cache:
        out = sys.stderr if options.json == "-" else sys.stdout
        conversation = talking.Conversation(cache, tokenizer, options.max_new_tokens, out)
        try:
            talking.talk(conversation, [] if options.once is None else [options.once])
        finally:
            if options.json:
                write_json(options.json, _document(conversation, options, address, command))
    return 0


def _store(given: str | None) -> tuple[str | None, int]:
    """The address of the store, and the bytes that it may use; 0 for all."""
    if given == _NONE:
        return None, 0
    if given is not None:
        return given, 0
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "hicache" / "chat"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CallerError(
            f"--storage: expected to write to {folder}, found: {error.strerror}; give "
            "--storage file:DIR, or --storage none"
        ) from None
    return f"file:{folder}", _STORE_BYTES


def _document(
    conversation: Any, options: Options, address: str | None, command: str
) -> dict[str, object]:
    return {
        "schema": 1,
        "hicache_version": VERSION,
        "command": command,
        "complete": sys.exc_info()[0] is None,
        "model": options.folder,
        "storage": address,
        "answers": conversation.documents(),
    }
