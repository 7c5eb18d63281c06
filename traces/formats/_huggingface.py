"""Turns text into token ids with a tokenizer.json of Hugging Face (the extra `text`).

Imported only for a trace of text. Does not know conversations or templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers import Tokenizer

from hicache.core.errors import CallerError
from hicache.files import text_of

_MOST_BYTES = 256 << 20


def load(path: str) -> Callable[[str], Sequence[int]]:
    """The function from text to ids, without special tokens."""
    content = text_of(path, "tokenizer", _MOST_BYTES, "name a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises Exception itself
        raise _unusable(path, "a tokenizer.json", error) from None

    def encode(text: str) -> Sequence[int]:
        try:
            ids: Sequence[int] = tokenizer.encode(text, add_special_tokens=False).ids
        except Exception as error:
            raise _unusable(path, "a text that it can encode", error) from None
        return ids

    return encode


def _unusable(path: str, expected: str, error: Exception) -> CallerError:
    found = str(error).partition("\n")[0][:120]
    return CallerError(
        f"--tokenizer {path}: expected {expected}, found: {found}; name another tokenizer"
    )
