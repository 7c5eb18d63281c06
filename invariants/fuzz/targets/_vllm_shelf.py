"""A tier below vLLM's host memory which answers a fetch key by key, as services on a network do
(tiering/kvcr/manager.py); the file tier gives up at the first file that is missing. It is a double
of our own, in place of a service. Scripts copy definitions from here.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from vllm.v1.kv_offload.tiering import base as tiering
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory


class Shelf(tiering.SecondaryTierManager):  # type: ignore[misc]
    """Chunks by key. Its jobs end when `carry_out` says so. loses: how many keys are fetched until
    one is lost, or 0."""

    def __init__(self, primary_kv_view: memoryview, loses: int = 0, **given: Any) -> None:
        super().__init__(primary_kv_view=primary_kv_view, **given)
        self.view = primary_kv_view
        self.chunks: dict[bytes, bytes] = {}
        self.jobs: dict[int, Any] = {}  # under way
        self.new: list[tuple[str, int]] = []
        self.done: list[Any] = []
        self.loses, self.fetched = loses, 0
        self.parts = 0  # fetches of which a part failed
        self.missed: Counter[bytes] = Counter()  # of `Files`: a key that is lost is not found again

    # -- what vLLM calls

    def on_new_request(self, req_context: Any) -> Any:
        return tiering.RequestOffloadingContext()

    def lookup(self, key: bytes, req_context: Any) -> Any:
        return tiering.LookupResult.HIT if key in self.chunks else tiering.LookupResult.MISS

    def submit_store(self, job_metadata: Any) -> None:
        self._begin("store", job_metadata)

    def submit_load(self, job_metadata: Any) -> None:
        self._begin("fetch", job_metadata)

    def _begin(self, kind: str, job: Any) -> None:
        self.jobs[job.job_id] = job
        self.new.append((kind, job.job_id))

    def get_finished_jobs(self) -> list[Any]:
        done, self.done = self.done, []
        return done

    def drain_jobs(self) -> None:
        for number in list(self.jobs):
            self.carry_out(number)

    # -- what the harness calls, as of `Files`

    def began(self) -> list[tuple[str, int]]:
        new, self.new = self.new, []
        return new

    def busy(self) -> bool:
        return bool(self.jobs)

    def carry_out(self, number: int, lose: bool = False) -> None:
        """A job ends. lose: every second key from one on, which one depends on the job, is lost."""
        job = self.jobs.pop(number, None)
        if job is None:
            return
        keys = list(job.keys)
        chunks = [int(one) for one in job.chunk_ids]
        lost = set(keys[number % len(keys) :: 2]) if lose else set()
        rows, well = np.asarray(self.view), []
        for key, chunk in zip(keys, chunks, strict=True):
            self.fetched += job.is_promotion
            if key in lost or (self.loses and job.is_promotion and not self.fetched % self.loses):
                self.chunks.pop(key, None)
            elif not job.is_promotion:
                self.chunks[key] = rows[chunk].tobytes()
            if key in self.chunks:
                well.append(key)
                if job.is_promotion:
                    rows[chunk] = np.frombuffer(self.chunks[key], rows.dtype)
        self.parts += job.is_promotion and 0 < len(well) < len(keys)
        said: dict[str, Any] = {"job_id": number, "success": len(well) == len(keys)}
        if job.is_promotion and not said["success"]:
            said["successful_keys"] = tuple(well) or None
        self.done.append(tiering.JobResult(**said))


def shelf(loses: int) -> dict[str, Any]:
    """The settings of such a tier, which vLLM then knows by its name."""
    SecondaryTierFactory._registry["shelf"] = lambda: Shelf
    return {"type": "shelf", "loses": loses}
