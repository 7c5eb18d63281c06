"""Turns text into token ids with a tokenizer.json of Hugging Face (the extra `text`).

Does not know conversations or templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers import Tokenizer

from hicache.core.errors import CallerError
from hicache.files import text_of

SUMMARY = "a tokenizer.json of Hugging Face"
_MOST_BYTES = 256 << 20


def load(path: str) -> Callable[[str], Sequence[int]]:
    """The function from text to ids, without special tokens."""
    content = text_of(path, "tokenizer", _MOST_BYTES, "name a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises Exception itself
        raise CallerError(
            f"--tokenizer {path}: expected a tokenizer.json, found: "
            f"{str(error).splitlines()[0][:120]}; name another file"
        ) from None
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
