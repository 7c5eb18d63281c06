"""A store in memory for tests: values are bytes in a dict, and a test may spoil them."""

from collections.abc import Iterator, Sequence

from hicache.storage.base import Entry, Status, Storage, Value


class MemoryStore(Storage):
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.answer: Status | None = None  # what every read and write says instead
        self.calls = 0

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        self.calls += 1
        failed = self.answer is Status.FAILED
        return [None if failed else self.answer is None and key in self.values for key in keys]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self.calls += 1
        return [self._read(key, value) for key, value in zip(keys, values, strict=True)]

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self.calls += 1
        for key, value in zip(keys, values, strict=True):
            if self.answer is None:
                self.values[key] = b"".join(value)
        return [self.answer or Status.DONE for _ in keys]

    def delete(self, keys: Sequence[str]) -> list[Status]:
        self.calls += 1
        if self.answer is not None:
            return [self.answer for _ in keys]
        gone = [self.values.pop(key, None) for key in keys]
        return [Status.MISSING if value is None else Status.DONE for value in gone]

    def entries(self, prefix: str) -> Iterator[Entry]:
        for key, value in list(self.values.items()):
            if key.startswith(prefix):
                yield Entry(key, len(value), 0.0)

    def stats(self) -> dict[str, int | float | str]:
        return {"values": len(self.values), "bytes": sum(map(len, self.values.values()))}

    def close(self) -> None:
        pass

    def _read(self, key: str, value: Value) -> Status:
        if self.answer is not None:
            return self.answer
        stored = self.values.get(key)
        if stored is None:
            return Status.MISSING
        if len(stored) != sum(buffer.nbytes for buffer in value):
            return Status.CORRUPT
        start = 0
        for buffer in value:
            buffer[:] = stored[start : start + buffer.nbytes]
            start += buffer.nbytes
        return Status.DONE
