"""A tokenizer.json that knows a few words and letters, for traces of text."""

from pathlib import Path

import pytest

_WORDS = (*"abcde", *["one", "two", "three", "four", "five", "six"])


def tiny_tokenizer(folder: Path) -> str:
    """Writes it into the folder. Skips the test where the library is missing."""
    tokenizers = pytest.importorskip(
        "tokenizers", reason="needs the extra text", exc_type=ImportError
    )
    words = {word: place for place, word in enumerate(_WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = folder / "tokenizer.json"
    made.save(str(path))
    return str(path)
