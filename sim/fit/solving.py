"""From samples to the factors on the defaults, in two rounds: passes are first those of replays
with the defaults; what comes out replays all rows again, and the passes of that are fitted.

How far a factor may go is its spread: the standard deviation of its logarithm that is expected
before any row is seen.

    pass    = device + host, or the longer of both where the engine overlaps them, + gap
    device  = sum over the kernels of the pass, as in sim/physics, at their peaks at most;
              at least their launches
    figure  = sum over passes of pass x weight, + what no pass explains
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from fnmatch import fnmatchcase

import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import block_diag, csr_array

from sim.fitted import ENGINE, PEAK, Factor, is_part
from sim.physics import Kernel

from .replays import HOST, Floats, Labels, Sample, recorded
from .rows import TTFT, Run

_FIELDS = tuple(field.name for field in fields(Kernel))
_PARTS = np.array([is_part(name) for name in _FIELDS])
_ROBUST = 0.1  # error, as a logarithm, beyond which more of it counts less
_WIDE = 0.4  # the same for the first steps
_MOST, _MOST_HOST = 1.1, 3.0  # how far the logarithm of a factor may go, whatever the rows say
_STEPS = 24
_LEAST = 1e-3  # part of the whole error that a step must save, or it is the last
_REQUEST = "request_host_ns"
_PAIR = "engine hardware model"
_REQUESTS = ("engine", "version", "version hardware", "engine model", _PAIR)
_NS = 1e-9
_DIGITS = 4
_SMALLEST = 0.002  # a factor nearer to 1 is left out
_FOLDS = 10

Name = tuple[str, tuple[str, ...]]  # a constant, or a pattern for several, and labels


def _models(spread: float, pair: float) -> dict[str, float]:
    """pair: that somebody published."""
    return dict.fromkeys(("model", "hardware model", "engine model"), spread) | {_PAIR: pair}


# By pattern of constants, the spread of each factor by its labels. each: a factor for every name
# that matches, not one for all of them.
_RULES: dict[str, dict[str, float]] = {
    "product.*.power": {"": 0.3},
    "product.*.compute": {"each family": 0.2, "engine": 0.1, **_models(0.1, 0.2)},
    "product.*.memory": {"hardware": 0.1, **_models(0.1, 0.2)},
    "product.*.fixed_us": {"each family": 0.3},
    "*.fixed_us": _models(0.2, 0.3),
    "elements.fixed_us": {"family engine": 0.25},
    "elements.memory": {"family": 0.3},
    "[cf]us*.fixed_us": {"family": 0.25},  # sums of ranks: custom and fused
    "[cf]us*.memory": {"family engine": 0.25},
    "all_*.fixed_us": {"family": 0.25},
    "prefill.*.compute": {"family": 0.25, **_models(0.3, 0.4)},
    "prefill.*.fixed_us": {"engine": 0.3},
    "decode.*.memory": {"each family": 0.2, "model": 0.1, _PAIR: 0.2},
    "decode.*.fixed_us": {"engine": 0.3},
    "experts.*.fixed_us": {"each family engine": 0.2},
    "experts.*.memory": {"each family": 0.15, **_models(0.2, 0.2)},
    "experts.*.compute": {"each family": 0.2, **_models(0.3, 0.4)},
    "sampling.memory": {"engine": 0.4},
    "engine.step_host_ns": {"engine": 0.5, "version": 0.5, "engine model": 0.3, _PAIR: 0.4},
    "engine.step_gap_ns": {"engine": 1.0, "version": 0.8, "engine model": 0.4, _PAIR: 0.6},
    "engine.per_sequence_host_ns": {"engine": 0.6},
    "engine.prefill_host_ns": {"engine": 0.6},
    "engine.launch_ns": {"engine": 0.3},
    "engine.request_host_ns": dict(zip(_REQUESTS, (1.0, 0.5, 1.0, 0.7, 1.0), strict=True)),
}


def parameters(samples: Sequence[Sample]) -> dict[Name, float]:
    """The factors on what these runs have, with their spreads."""
    known: dict[Name, float] = {}
    seen = {(sample.labels, name) for sample in samples for name in _constants(sample)}
    for labels, constant in sorted(seen):
        for pattern, spreads in _RULES.items():
            for levels, spread in spreads.items() if fnmatchcase(constant, pattern) else ():
                name = constant if levels.startswith("each ") else pattern
                names = levels.removeprefix("each ").split()
                where = tuple(getattr(labels, level) for level in names)
                known.setdefault((name, where), spread)
    return dict(sorted(known.items()))


def _constants(sample: Sample) -> list[str]:
    """The names of the constants that count in a sample."""
    kinds = [f"{kind}.{field}" for kind in sample.kernels for field in _FIELDS]
    return kinds + [ENGINE + name for name in HOST if getattr(sample.run.engine, name)]


class Table:
    """The figures of all samples at once, for any factors on their constants. names: of the
    factors. Cells are kernels of one kind and one set of labels."""

    def __init__(self, samples: Sequence[Sample], names: Sequence[Name]) -> None:
        cells: dict[tuple[Labels, str], Kernel] = {}
        for sample in samples:
            cells |= {(sample.labels, kind): kernel for kind, kernel in sample.kernels.items()}
        numbers = {cell: number for number, cell in enumerate(cells)}
        lengths = [len(sample.sequences) for sample in samples]
        works = []
        for sample, begin in zip(samples, np.cumsum([0, *lengths]), strict=False):
            own = np.array([numbers[sample.labels, kind] for kind in sample.kernels])
            passes, kinds = sample.work[:, 0] + begin, own[sample.work[:, 1].astype(np.int64)]
            works.append(np.column_stack([passes, kinds, sample.work[:, 2:]]))
        work = np.concatenate(works)
        self._pass, self._cell = work[:, :2].astype(np.int64).T
        self._launches, self._compute, self._moved, self._inside = work[:, 2:].T
        self._sample = np.repeat(np.arange(len(samples)), lengths)
        self._sequences, self._prompts, self._starts = (
            np.concatenate([getattr(sample, name) for sample in samples])
            for name in ("sequences", "prompts", "starts")
        )
        engines = [sample.run.engine for sample in samples]
        self._overlap = np.array([engine.overlap for engine in engines])[self._sample]
        permille = np.array([engine.device_permille for engine in engines])
        self._device = permille[self._sample] / 1000
        self._weights = csr_array(
            block_diag([np.stack([figure.weights for figure in each.figures]) for each in samples])
        )
        targets = [figure for sample in samples for figure in sample.figures]
        self.owner = np.repeat(np.arange(len(samples)), [len(sample.figures) for sample in samples])
        self._rest, self._request, self.measured = np.array(
            [(target.rest, target.what == TTFT, target.measured) for target in targets],
            dtype=np.float64,
        ).T
        self._base = np.array(
            [[getattr(cell, field) for field in _FIELDS] for cell in cells.values()]
        )
        constants = [(labels, f"{kind}.{field}") for labels, kind in cells for field in _FIELDS]
        self._matrix = _changes(names, constants)
        self._host_base = np.array(
            [[getattr(engine, name) for name in HOST] for engine in engines], float
        )
        hosts = [(sample.labels, ENGINE + name) for sample in samples for name in HOST]
        self._host_matrix = _changes(names, hosts)

    def predict(self, logs: Floats, slopes: bool = False) -> tuple[Floats, Floats]:
        """The figures in seconds, and with `slopes` the derivative of each by each logarithm: a row
        for each figure. logs: of the factors."""
        # of each entry of work. free: below its peak, so that its factors count
        values = self._base * np.exp(self._matrix @ logs).reshape(self._base.shape)
        free = ~(_PARTS & (values > PEAK))
        fixed, compute, memory, power = np.where(free, values, PEAK)[self._cell].T
        longer, shorter = self._compute / compute, self._moved / memory
        both = (longer**power + shorter**power) ** (1 / power)
        entry = self._launches * fixed * 1000 + both
        # of each pass
        count = len(self._sample)
        layers = np.bincount(self._pass, entry * self._inside, count) * self._device
        ends = np.bincount(self._pass, entry * (1 - self._inside), count) * self._device
        factors = np.exp(self._host_matrix @ logs).reshape(self._host_base.shape)
        of_sample = self._host_base * factors
        host = of_sample[self._sample]
        step, gap, sequence, prompt, _, launch = host.T
        hosted = step + self._sequences * sequence + self._prompts * prompt
        floor = self._starts * launch
        device = np.maximum(layers, floor) + ends
        took = np.where(self._overlap, np.maximum(device, hosted), device + hosted) + gap
        request = of_sample[self.owner, HOST.index(_REQUEST)] * self._request
        seconds: Floats = (self._weights @ took + request) * _NS + self._rest
        sloped = np.zeros((len(seconds), len(logs)))
        if not slopes:
            return seconds, sloped
        on_device = np.where(self._overlap, device >= hosted, 1.0)
        on_layers = on_device * (layers >= floor) * self._device
        shares = on_layers[self._pass] * self._inside
        shares += (on_device * self._device)[self._pass] * (1 - self._inside)
        # of each entry's time, the slope by the logarithm of each field of its kernel
        least = np.maximum(both, 1e-9)
        part = (longer / least) ** power
        rise = np.log(np.maximum(longer, 1e-9) / least) * part
        rise = rise + np.log(np.maximum(shorter, 1e-9) / least) * (1 - part)
        by_field = (self._launches * fixed * 1000, -part * both, -(1 - part) * both, both * rise)
        for number, slope in enumerate(by_field):
            each = slope * free[self._cell, number] * shares
            shape = count, len(self._base)
            summed = self._weights @ csr_array((each, (self._pass, self._cell)), shape)
            sloped += summed @ self._matrix[number :: len(_FIELDS)]
        on_host = np.where(self._overlap, device < hosted, 1.0)
        floored = on_device * (layers < floor) * self._starts
        per_pass = (on_host, 1.0, on_host * self._sequences, on_host * self._prompts, 0.0, floored)
        for number, (name, each) in enumerate(zip(HOST, per_pass, strict=True)):
            summed = request if name == _REQUEST else self._weights @ (each * host[:, number])
            sloped += summed[:, None] * self._host_matrix[number :: len(HOST)][self.owner]
        return seconds, sloped * _NS


def _changes(names: Sequence[Name], constants: list[tuple[Labels, str]]) -> Floats:
    """Which factors change each constant of a run with these labels: a row for each."""
    changes = np.zeros((len(constants), len(names)))
    for row, (labels, constant) in enumerate(constants):
        changes[row] = [
            set(labels).issuperset(where) and fnmatchcase(constant, pattern)
            for pattern, where in names
        ]
    return changes


def fit(runs: Sequence[Run], jobs: int) -> tuple[tuple[Factor, ...], list[Sample]]:
    """The factors, and the samples of the second round. jobs: processes."""
    first = fitted_to(recorded(runs, (), jobs), ())
    again = recorded(runs, first, jobs)
    return fitted_to(again, first), again


def predicted(samples: Sequence[Sample], factors: Sequence[Factor]) -> list[float]:
    """Every figure of the samples under these factors, in seconds."""
    table = Table(samples, [(factor.constant, factor.where) for factor in factors])
    seconds: list[float] = table.predict(np.log([factor.factor for factor in factors]))[0].tolist()
    return seconds


def left_out(
    samples: Sequence[Sample], factors: Sequence[Factor]
) -> tuple[list[Sample], list[float]]:
    """The samples, and every figure of them predicted without any sample of its series, in ten
    folds. factors: that fit all, where each search begins."""
    series = {
        name: number
        for number, name in enumerate(sorted({sample.run.series for sample in samples}))
    }
    parted: list[Sample] = []
    seconds: list[float] = []
    for fold in range(_FOLDS):
        out = [sample for sample in samples if series[sample.run.series] % _FOLDS == fold]
        rest = [sample for sample in samples if series[sample.run.series] % _FOLDS != fold]
        parted += out
        seconds += predicted(out, fitted_to(rest, factors)) if out else []
    return parted, seconds


def fitted_to(samples: Sequence[Sample], begin: Sequence[Factor]) -> tuple[Factor, ...]:
    """The factors that fit these samples best and change something, rounded as the file has them.
    begin: where the search begins."""
    value = parameters(samples)
    table, spread = Table(samples, list(value)), np.array(list(value.values()))
    sizes = Counter(sample.run.group for sample in samples)
    mean = len(samples) / len(sizes)
    of_sample = np.array(
        [min(1.0, (sizes[sample.run.group] / mean) ** -0.25) for sample in samples]
    )
    weights = of_sample[table.owner]

    def errors(logs: Floats, robust: float) -> Floats:
        off = np.log(table.predict(logs)[0] / table.measured)
        bent = np.sign(off) * np.sqrt(np.log1p((off / robust) ** 2)) * (robust / _ROBUST)
        return np.concatenate([weights * bent, logs / spread])

    def slopes(logs: Floats, robust: float) -> Floats:
        seconds, slope = table.predict(logs, slopes=True)
        off = np.log(seconds / table.measured)
        far = np.maximum(np.abs(off / robust), 1e-6)
        bend = far / (1 + far**2) / np.sqrt(np.log1p(far**2)) / _ROBUST
        rows = (weights * bend / seconds)[:, None] * slope
        return np.concatenate([rows, np.diag(1 / spread)])

    most = np.array([_MOST_HOST if text.startswith(ENGINE) else _MOST for text, _ in value])
    known = {(factor.constant, factor.where): factor.factor for factor in begin}
    logs = np.log([known.get(name, 1.0) for name in value])
    # a wide loss first: what is far from its rows would count as a bad row in the narrow one
    for robust in (_ROBUST,) if begin else (_WIDE, _ROBUST):
        logs = least_squares(
            errors,
            logs,
            slopes,
            bounds=(-1.01 * most, 1.01 * most),
            max_nfev=_STEPS,
            x_scale=spread,
            ftol=_LEAST,
            tr_solver="lsmr",
            args=(robust,),
        ).x
    rounded = [float(f"{factor:.{_DIGITS}g}") for factor in np.exp(logs)]
    pairs = zip(value, rounded, strict=True)
    return tuple(Factor(*name, number) for name, number in pairs if abs(number - 1) >= _SMALLEST)
