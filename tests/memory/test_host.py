"""Memory that is asked for and not there, NUMA nodes, and sizes that are really the total."""

import fcntl
from fractions import Fraction
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.memory import host
from hicache.memory.pools import by_ratio

OLDER = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_a_refused_allocation_is_an_error_with_numbers() -> None:
    with pytest.raises(CallerError, match=rf"room for {1 << 60} bytes \(kv {1 << 60}\), .*refused"):
        host.allocate("kv", 1 << 60)


def test_pools_that_fit_one_by_one_are_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_bytes", lambda: 1000)
    with host.enough({"a": 600, "b": 400}):
        pass
    too_much = pytest.raises(CallerError, match=r"room for 1001 bytes \(a 600, b 401\).*1000 avail")
    with too_much, host.enough({"a": 600, "b": 401}):
        pass
    monkeypatch.setattr(host, "available_bytes", lambda: None)
    with host.enough({"a": 1 << 60}):
        pass


def test_ranks_of_a_machine_ask_one_at_a_time_and_see_what_others_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = Path("/proc/self/statm")
    if not resident.exists():
        pytest.skip("this system does not say what is resident")
    monkeypatch.setattr(host, "_LOCK", tmp_path / "lock")
    before = int(resident.read_text().split()[1])
    with host.enough({"pool": 64 << 20}), open(host._LOCK, "ab") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        buffer = host.allocate("pool", 64 << 20)
    assert int(resident.read_text().split()[1]) - before > 60 * (1 << 20) // host.GRANULE
    assert buffer.nbytes == 64 << 20
    with open(host._LOCK, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert host._LOCK.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("own", "root", "limit", "used", "kept"),
    [
        ("0::/a/b", "", "memory.max", "memory.current", "inactive_file"),
        ("4:memory:/a/b", "memory", *OLDER),
    ],
)
def test_a_control_groups_limit_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    root: str,
    limit: str,
    used: str,
    kept: str,
) -> None:
    """In the group itself, or in one above, of version 2 and 1."""
    real = Path.read_text
    monkeypatch.setattr(host, "_GROUPS", tmp_path)
    monkeypatch.setattr(
        Path, "read_text", lambda path: own if path == Path("/proc/self/cgroup") else real(path)
    )
    assert host._group_left() is None
    group = tmp_path / root / "a"
    (group / "b").mkdir(parents=True)
    (group / "memory.stat").write_text(f"anon 7\n{kept} 40\n")
    (group / used).write_text("100\n")
    (group / limit).write_text("500\n")
    assert host._group_left() == 440
    (group / limit).write_text("50\n")
    assert host._group_left() == 0
    (group / limit).write_text("max\n")
    assert host._group_left() is None


def test_a_buffer_starts_with_a_page_of_the_system_and_is_zero() -> None:
    for size in (1, 4095, 1 << 20):
        buffer = host.allocate("x", size)
        assert buffer.nbytes == size
        assert buffer.ctypes.data % host.GRANULE == 0
        assert not buffer.any()
    assert host.allocate("x", 0).nbytes == 0


def test_a_host_ratio_gives_at_least_one_page_more() -> None:
    assert by_ratio({"full": 10, "swa": 3}, Fraction(5, 2)) == {"full": 25, "swa": 7}
    assert by_ratio({"full": 10, "swa": 3}, Fraction(1)) == {"full": 11, "swa": 4}
    with pytest.raises(CallerError, match="more than 0"):
        by_ratio({"full": 1}, Fraction(0))
