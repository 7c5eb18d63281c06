"""What the errors of an S3 server mean."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore", exc_type=ImportError)

from hicache.storage.backends.s3 import _status
from hicache.storage.base import Status

_SENT = "Generic S3 error: Error performing PUT http://127.0.0.1:{port}/kvcache/k in {time} - "


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (_SENT + "HTTP error: error sending request", Status.FAILED),
        (_SENT + "Server returned non-2xx status code: 507 Insufficient Storage", Status.FULL),
        (_SENT + "status code: 400: <Error><Code>QuotaExceeded</Code></Error>", Status.FULL),
        (_SENT + "Server returned non-2xx status code: 500 Internal Error", Status.FAILED),
    ],
)
def test_a_full_store_is_told_by_its_answer_alone(message: str, status: Status) -> None:
    """Not by a number in its port or in the time that it took."""
    assert _status(OSError(message.format(port=50700, time="5.507ms"))) is status
    assert _status(FileNotFoundError("507")) is Status.MISSING
    assert _status(Status.DONE) is Status.DONE
