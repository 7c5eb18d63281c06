"""Predicts the figures of all samples at once, for any factors on their constants.

    pass    = device + host, or the longer of both where the engine overlaps them, + gap
    device  = sum over the kernels of the pass, as in sim/physics/kernels, at their peaks at most;
              at least their launches
    figure  = sum over passes of pass x weight, + what no pass explains

Lives here: the arrays, and the arithmetic on them. Does not know what is fitted to what (see
parameters, solving).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.fitted import ENGINE, PEAK, is_part
from sim.physics import Kernel

from .parameters import Labels, Parameter
from .samples import HOST, Sample

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
FIELDS = tuple(field.name for field in fields(Kernel))
_PARTS = np.array([is_part(name) for name in FIELDS])
_S = 1e-9


def constants_of(sample: Sample) -> list[str]:
    """The names of the constants that count in a sample."""
    kinds = [f"{kind}.{field}" for kind in sample.kernels for field in FIELDS]
    return kinds + [ENGINE + name for name in HOST if sample.host[name]]


class Table:
    """See the module. Rows of `cells` are kernels of one kind and one set of labels."""

    def __init__(self, samples: Sequence[Sample], parameters: Sequence[Parameter]) -> None:
        self.samples = samples
        self._cells = _Cells(parameters)
        work, passes, weights = [], [], []
        begin = figures = 0
        for number, sample in enumerate(samples):
            cells = self._cells.kernels(sample)
            kinds = np.array([cells[kind] for kind in sample.kinds], dtype=np.int64)
            work.append((sample.work[:, 0] + begin, kinds[sample.work[:, 1].astype(np.int64)]))
            passes.append(np.full(len(sample.sequences), number))
            for one in sample.figures:
                weights.append((figures, begin, one.weights))
                figures += 1
            begin += len(sample.sequences)
        self._pass = np.concatenate([one[0] for one in work]).astype(np.int64)
        self._cell = np.concatenate([one[1] for one in work])
        columns = np.concatenate([sample.work[:, 2:] for sample in samples])
        self._launches, self._compute, self._moved, self._inside = columns.T
        self._sample = np.concatenate(passes)
        self._sequences = np.concatenate([sample.sequences for sample in samples])
        self._prompts = np.concatenate([sample.prompts for sample in samples])
        self._starts = np.concatenate([sample.starts for sample in samples])
        self._overlap = np.array([sample.overlap for sample in samples])[self._sample]
        self._permille = np.array([sample.device for sample in samples])[self._sample]
        self._figure = np.concatenate([np.full(len(each), at) for at, _, each in weights])
        self._of = np.concatenate([np.arange(len(each)) + at for _, at, each in weights])
        self._weight = np.concatenate([each for _, _, each in weights])
        flat = [(number, one) for number, sample in enumerate(samples) for one in sample.figures]
        self.owner = np.array([number for number, _ in flat])
        self.figures = [one for _, one in flat]
        self._rest = np.array([one.rest for one in self.figures])
        self._request = np.array([one.requests for one in self.figures])
        self.measured = np.array([one.measured for one in self.figures])
        self._cells.close(samples)
        self._entries()

    def _entries(self) -> None:
        """Every entry of work once for each figure that its pass is part of."""
        order = np.argsort(self._pass, kind="stable")
        begins = np.searchsorted(self._pass[order], np.arange(len(self._sample) + 1))
        counts = (begins[1:] - begins[:-1])[self._of]
        ends = np.cumsum(counts)
        within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        self._entry = order[np.repeat(begins[:-1][self._of], counts) + within]
        self._entry_weight = np.repeat(self._weight, counts)
        self._entry_key = (
            np.repeat(self._figure, counts) * self._cells.count + self._cell[self._entry]
        )

    def predict(self, logs: Floats) -> Floats:
        """The figures in seconds. logs: of the factors, in the order of the parameters."""
        return self._predicted(self._state(logs))

    def slopes(self, logs: Floats) -> tuple[Floats, Floats]:
        """The figures, and the derivative of each by each logarithm: a row for each figure."""
        state = self._state(logs)
        on_device = np.where(self._overlap, state.device >= state.hosted, 1.0)
        on_layers = on_device * (state.layers >= state.floor) * self._permille
        shares = on_layers[self._pass] * self._inside
        shares += (on_device * self._permille)[self._pass] * (1 - self._inside)
        found = np.zeros((len(self.figures), len(logs)))
        size = len(self.figures) * self._cells.count
        for number, slope in enumerate(state.slopes(self._launches)):
            each = (slope * state.free[number] * shares)[self._entry] * self._entry_weight
            sums = np.bincount(self._entry_key, each, size).reshape(len(self.figures), -1)
            found += sums @ self._cells.changes(number)
        on_host = np.where(self._overlap, state.device < state.hosted, 1.0)
        floored = on_device * (state.layers < state.floor) * self._starts
        per_pass = (on_host, 1.0, on_host * self._sequences, on_host * self._prompts, 0.0, floored)
        for number, each in enumerate(per_pass):
            weighed = (each * state.host[:, number])[self._of] * self._weight
            sums = np.bincount(self._figure, weighed, len(self.figures))
            if HOST[number] == "request_host_ns":
                sums = self._cells.host(logs)[self.owner, number] * self._request
            found += sums[:, None] * self._cells.host_changes(number)[self.owner]
        return self._predicted(state), found * _S

    def _state(self, logs: Floats) -> _State:
        values = self._cells.values(logs)
        free = ~(_PARTS & (values > PEAK))
        held = np.where(free, values, PEAK)
        fixed, compute, memory, power = held[self._cell].T
        longer, shorter = self._compute / compute, self._moved / memory
        total = longer**power + shorter**power
        both = total ** (1 / power)
        device = self._launches * fixed * 1000 + both
        count = len(self._sample)
        layers = np.bincount(self._pass, device * self._inside, count) * self._permille
        ends = np.bincount(self._pass, device * (1 - self._inside), count) * self._permille
        host = self._cells.host(logs)[self._sample]
        step, gap, sequence, prompt, _, launch = host.T
        hosted = step + self._sequences * sequence + self._prompts * prompt
        floor = self._starts * launch
        whole = np.maximum(layers, floor) + ends
        took = np.where(self._overlap, np.maximum(whole, hosted), whole + hosted) + gap
        request = self._cells.host(logs)[self.owner, HOST.index("request_host_ns")]
        return _State(
            fixed,
            power,
            longer,
            shorter,
            both,
            free[self._cell].T,
            layers,
            floor,
            whole,
            hosted,
            host,
            took,
            request,
        )

    def _predicted(self, state: _State) -> Floats:
        found = np.bincount(self._figure, state.took[self._of] * self._weight, len(self.figures))
        changed: Floats = (found + state.request * self._request) * _S + self._rest
        return changed


class _State(NamedTuple):
    """What a prediction computes: of each entry of work, and from `layers` on of each pass. free:
    by field, whether it is below its peak, so that its factors count."""

    fixed: Floats
    power: Floats
    longer: Floats
    shorter: Floats
    both: Floats
    free: NDArray[np.bool_]
    layers: Floats
    floor: Floats
    device: Floats
    hosted: Floats
    host: Floats
    took: Floats
    request: Floats

    def slopes(self, launches: Floats) -> Iterator[Floats]:
        """Of each entry's time by the logarithms of its kernel's fields."""
        yield launches * self.fixed * 1000
        of_longer = (self.longer / np.maximum(self.both, 1e-9)) ** self.power
        of_shorter = 1 - of_longer
        yield -of_longer * self.both
        yield -of_shorter * self.both
        ratio = np.log(np.maximum(self.longer, 1e-9) / np.maximum(self.both, 1e-9)) * of_longer
        other = np.log(np.maximum(self.shorter, 1e-9) / np.maximum(self.both, 1e-9)) * of_shorter
        yield self.both * (ratio + other)


class _Cells:
    """The constants: defaults, and which factors change each of them."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = parameters
        self._number: dict[tuple[Labels, str], int] = {}
        self._defaults: list[list[float]] = []
        self._changes: list[list[Integers]] = []

    def kernels(self, sample: Sample) -> dict[str, int]:
        """The cells of a sample's kinds."""
        found = {}
        for kind, kernel in sample.kernels.items():
            key = sample.labels, kind
            if key not in self._number:
                self._number[key] = len(self._defaults)
                self._defaults.append([getattr(kernel, name) for name in FIELDS])
                self._changes.append([self._of(sample, f"{kind}.{name}") for name in FIELDS])
            found[kind] = self._number[key]
        return found

    def close(self, samples: Sequence[Sample]) -> None:
        count = len(self._parameters)
        self._base = np.array(self._defaults)
        self._matrix = _matrix([one for each in self._changes for one in each], count)
        self._host_base = np.array([[one.host[name] for name in HOST] for one in samples], float)
        changes = [self._of(one, ENGINE + name) for one in samples for name in HOST]
        self._host_matrix = _matrix(changes, count)

    def values(self, logs: Floats) -> Floats:
        found: Floats = self._base * np.exp(self._matrix @ logs).reshape(self._base.shape)
        return found

    def host(self, logs: Floats) -> Floats:
        factors = np.exp(self._host_matrix @ logs).reshape(self._host_base.shape)
        found: Floats = self._host_base * factors
        return found

    @property
    def count(self) -> int:
        return len(self._base)

    def changes(self, field: int) -> Floats:
        """Which factors change a field of each cell."""
        return self._matrix[field :: len(FIELDS)]

    def host_changes(self, number: int) -> Floats:
        """Which factors change a time of the host in each sample."""
        return self._host_matrix[number :: len(HOST)]

    def _of(self, sample: Sample, constant: str) -> Integers:
        labels = sample.labels.all
        return np.array(
            [
                number
                for number, parameter in enumerate(self._parameters)
                if parameter.applies(constant, labels)
            ],
            dtype=np.int64,
        )


def _matrix(changes: list[Integers], columns: int) -> Floats:
    found = np.zeros((len(changes), columns))
    for row, numbers in enumerate(changes):
        found[row, numbers] = 1.0
    return found
