"""The helper that finds the conversation trace: by name, by folder, beside the checkout, or not."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests import conversation


def test_the_trace_is_found_by_name_by_folder_and_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / conversation.NAME
    path.write_bytes(b"the trace")
    monkeypatch.setattr(conversation, "SHA256", sha256(b"the trace").hexdigest())
    nowhere = tmp_path / "nowhere"
    assert conversation.find({"HICACHE_TRACE": str(path)}, nowhere) == path
    assert conversation.find({"HICACHE_TRACE": str(tmp_path)}, nowhere) == path
    assert conversation.find({}, tmp_path) == path
    monkeypatch.setenv("HICACHE_TRACE", str(path))
    assert conversation.conversation() == path


def test_without_a_trace_the_skip_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"kvcache-ai/Mooncake.*HICACHE_TRACE"):
        conversation.find({}, tmp_path)


def test_a_wrong_name_or_another_file_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="HICACHE_TRACE: expected the trace"):
        conversation.find({"HICACHE_TRACE": str(tmp_path / "none")}, tmp_path)
    (tmp_path / conversation.NAME).write_bytes(b"another")
    with pytest.raises(pytest.fail.Exception, match="found another file"):
        conversation.find({}, tmp_path)
