"""The time of the host in a pass: scheduling, inputs and outputs, beside the kernels.

Lives here: how much longer a pass takes than the device works. Does not compute the device's time
(see sim/times) or what a request costs before the scheduler sees it (see reception).

    pass = device + gap + host                  without overlap
    pass = max(device, host) + gap              with overlap
    host = step + per sequence x (decoding + chunks) + per chunk x chunks
"""

from __future__ import annotations

from ..engine_profiles.base import EngineProfile


class HostTimes:
    """See the module. Keeps no state between calls."""

    __slots__ = ("_chunk_ns", "_gap_ns", "_overlap", "_sequence_ns", "_step_ns")

    def __init__(self, profile: EngineProfile) -> None:
        self._gap_ns = profile.step_gap_ns
        self._step_ns = profile.step_host_ns
        self._sequence_ns = profile.per_sequence_host_ns
        self._chunk_ns = profile.prefill_host_ns
        self._overlap = profile.overlap

    def of(self, decoding: int, chunks: int) -> tuple[int, int]:
        """(added, least) in ns: with `device_ns` of the device, a pass over so many decoding
        sequences and chunks takes max(device_ns + added, least)."""
        host_ns = self._step_ns + self._sequence_ns * (decoding + chunks) + self._chunk_ns * chunks
        if self._overlap:
            return self._gap_ns, host_ns + self._gap_ns
        return host_ns + self._gap_ns, 0
