"""From rows to the factors on the defaults, and the file that has them.

A factor counts for the runs that have all of its labels (see sim/fitted), and the factors of a
constant multiply. So what runs share is fitted once, and a version, an accelerator, a model, a
model on an accelerator, an engine's code for a model, or a pair that somebody published (an engine
with an accelerator and a model) only says how it differs. How far a factor may go is its `spread`:
the standard deviation of its logarithm that is expected before any row is seen.

The fit has two rounds. Passes are first those of replays with the defaults, on which they depend
only a little; what comes out replays all rows again, and the passes of that are fitted once more.
Nothing depends on the constants that the project has already, so the same rows give the same file.

Where requests come in bunches, one waits for the host's time of those before it, and the longer
that is, the more of them come together: a second of it may cost more than a second of TTFT. What
the second recording has more than the first one foretells under the same constants is this cost.

Factors are found by least squares of the logarithms of predicted over measured. What errors beyond
a tenth count grows ever more slowly, so single bad rows do not pull. Groups with more rows than
most count less for each row, so that none decides alone. Factors are held near 1 by their spread.

    pass    = device + host, or the longer of both where the engine overlaps them, + gap
    device  = sum over the kernels of the pass, as in sim/physics, at their peaks at most;
              at least their launches
    figure  = sum over passes of pass x weight, + what no pass explains
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase

import numpy as np
from scipy.optimize import least_squares

from sim.fitted import ENGINE, FORMAT, PEAK, Factor, is_part, total
from sim.physics import Kernel

from .replays import HOST, Floats, Labels, Sample, recorded
from .rows import TTFT, Row

_FIELDS = tuple(field.name for field in fields(Kernel))
_PARTS = np.array([is_part(name) for name in _FIELDS])
_ROBUST = 0.1  # error, as a logarithm, beyond which more of it counts less
_WIDE = 0.4  # the same for the first steps
_MOST, _MOST_HOST = 1.1, 3.0  # how far the logarithm of a factor may go, whatever the rows say
_STEPS = 40
_LEAST = 1e-3  # part of the whole error that a step must save, or it is the last
_REQUEST = "request_host_ns"
_PAIR = "engine hardware model"
_REQUESTS = ("engine", "version", "version hardware", "engine model", _PAIR)
_LEAST_S = 1e-4  # of change in the host's time, below which it tells nothing
_MOST_RESPONSE = 8.0  # seconds of TTFT for a second of it
_NS = 1e-9
_DIGITS = 4
_SMALLEST = 0.002  # a factor nearer to 1 is left out


@dataclass(frozen=True, slots=True)
class Parameter:
    """One factor. constant: its name, or a pattern for several that share the factor."""

    constant: str
    where: tuple[str, ...]
    spread: float

    def applies(self, constant: str, labels: frozenset[str]) -> bool:
        return labels.issuperset(self.where) and fnmatchcase(constant, self.constant)


def _models(spread: float, pair: float) -> dict[str, float]:
    """pair: that somebody published."""
    levels = ("model", "hardware model", "engine model")
    return dict.fromkeys(levels, spread) | {_PAIR: pair}


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


def constants_of(sample: Sample) -> list[str]:
    """The names of the constants that count in a sample."""
    kinds = [f"{kind}.{field}" for kind in sample.kernels for field in _FIELDS]
    return kinds + [ENGINE + name for name in HOST if sample.host[name]]


def parameters(samples: Iterable[Sample]) -> list[Parameter]:
    """The factors on what these rows have."""
    seen = {(one.labels, name) for one in samples for name in constants_of(one)}
    known: dict[tuple[str, tuple[str, ...]], Parameter] = {}
    for labels, constant in sorted(seen):
        for pattern, spreads in _RULES.items():
            for levels, spread in spreads.items() if fnmatchcase(constant, pattern) else ():
                name = constant if levels.startswith("each ") else pattern
                names = levels.removeprefix("each ").split()
                where = tuple(getattr(labels, level) for level in names)
                known.setdefault((name, where), Parameter(name, where, spread))
    return sorted(known.values(), key=lambda one: (one.constant, one.where))


# -- the figures of all samples at once, for any factors on their constants


class Table:
    """See the module. Cells are kernels of one kind and one set of labels."""

    def __init__(self, samples: Sequence[Sample], given: Sequence[Parameter]) -> None:
        self.samples = samples
        cells: dict[tuple[Labels, str], int] = {}
        defaults: list[list[float]] = []
        entries, kinds = [], []
        begin = figures = 0
        figure, of, weight = [], [], []
        for sample in samples:
            for kind, kernel in sample.kernels.items():
                if cells.setdefault((sample.labels, kind), len(cells)) == len(defaults):
                    defaults.append([getattr(kernel, name) for name in _FIELDS])
            own = np.array([cells[sample.labels, kind] for kind in sample.kinds], dtype=np.int64)
            entries.append(sample.work[:, 0] + begin)
            kinds.append(own[sample.work[:, 1].astype(np.int64)])
            for one in sample.figures:
                figure.append(np.full(len(one.weights), figures))
                of.append(np.arange(len(one.weights)) + begin)
                weight.append(one.weights)
                figures += 1
            begin += len(sample.sequences)
        self._count = len(cells)
        self._pass = np.concatenate(entries).astype(np.int64)
        self._cell = np.concatenate(kinds)
        columns = np.concatenate([sample.work[:, 2:] for sample in samples])
        self._launches, self._compute, self._moved, self._inside = columns.T
        lengths = [len(sample.sequences) for sample in samples]
        self._sample = np.repeat(np.arange(len(samples)), lengths)
        self._sequences, self._prompts, self._starts = (
            np.concatenate([getattr(sample, name) for sample in samples])
            for name in ("sequences", "prompts", "starts")
        )
        self._overlap = np.array([sample.overlap for sample in samples])[self._sample]
        self._permille = np.array([sample.device for sample in samples])[self._sample]
        self._figure, self._of, self._weight = map(np.concatenate, (figure, of, weight))
        flat = [(number, one) for number, sample in enumerate(samples) for one in sample.figures]
        self.owner = np.array([number for number, _ in flat])
        self._rest, self._request, self.measured = np.array(
            [(one.rest, one.requests, one.measured) for _, one in flat], dtype=np.float64
        ).T
        self._base = np.array(defaults)
        names = [(one, f"{kind}.{field}") for one, kind in cells for field in _FIELDS]
        self._matrix = _changes(given, names)
        self._host_base = np.array([[one.host[name] for name in HOST] for one in samples], float)
        hosts = [(one.labels, ENGINE + name) for one in samples for name in HOST]
        self._host_matrix = _changes(given, hosts)
        # every entry of work once for each figure that its pass is part of
        order = np.argsort(self._pass, kind="stable")
        begins = np.searchsorted(self._pass[order], np.arange(begin + 1))
        counts = (begins[1:] - begins[:-1])[self._of]
        ends = np.cumsum(counts)
        within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        self._entry = order[np.repeat(begins[:-1][self._of], counts) + within]
        self._entry_weight = np.repeat(self._weight, counts)
        self._entry_key = np.repeat(self._figure, counts) * self._count + self._cell[self._entry]

    def predict(self, logs: Floats) -> Floats:
        """The figures in seconds. logs: of the factors, in the order of the parameters."""
        return self.slopes(logs, predict=True)[0]

    def slopes(self, logs: Floats, predict: bool = False) -> tuple[Floats, Floats]:
        """The figures, and the derivative of each by each logarithm: a row for each figure; none
        with `predict`."""
        # of each entry of work. free: below its peak, so that its factors count
        values = self._base * np.exp(self._matrix @ logs).reshape(self._base.shape)
        free = ~(_PARTS & (values > PEAK))
        fixed, compute, memory, power = np.where(free, values, PEAK)[self._cell].T
        longer, shorter = self._compute / compute, self._moved / memory
        both = (longer**power + shorter**power) ** (1 / power)
        entry = self._launches * fixed * 1000 + both
        # of each pass
        count, figures = len(self._sample), len(self.measured)
        layers = np.bincount(self._pass, entry * self._inside, count) * self._permille
        ends = np.bincount(self._pass, entry * (1 - self._inside), count) * self._permille
        factors = np.exp(self._host_matrix @ logs).reshape(self._host_base.shape)
        of_sample = self._host_base * factors
        host = of_sample[self._sample]
        step, gap, sequence, prompt, _, launch = host.T
        hosted = step + self._sequences * sequence + self._prompts * prompt
        floor = self._starts * launch
        device = np.maximum(layers, floor) + ends
        took = np.where(self._overlap, np.maximum(device, hosted), device + hosted) + gap
        request = of_sample[self.owner, HOST.index(_REQUEST)] * self._request
        sums = np.bincount(self._figure, took[self._of] * self._weight, figures)
        seconds: Floats = (sums + request) * _NS + self._rest
        sloped = np.zeros((figures, len(logs)))
        if predict:
            return seconds, sloped
        on_device = np.where(self._overlap, device >= hosted, 1.0)
        on_layers = on_device * (layers >= floor) * self._permille
        shares = on_layers[self._pass] * self._inside
        shares += (on_device * self._permille)[self._pass] * (1 - self._inside)
        # of each entry's time, the slope by the logarithm of each field of its kernel
        least = np.maximum(both, 1e-9)
        part = (longer / least) ** power
        rise = np.log(np.maximum(longer, 1e-9) / least) * part
        rise = rise + np.log(np.maximum(shorter, 1e-9) / least) * (1 - part)
        by_field = (self._launches * fixed * 1000, -part * both, -(1 - part) * both)
        for number, slope in enumerate((*by_field, both * rise)):
            each = (slope * free[self._cell].T[number] * shares)[self._entry] * self._entry_weight
            sums = np.bincount(self._entry_key, each, figures * self._count)
            sloped += sums.reshape(figures, -1) @ self._matrix[number :: len(_FIELDS)]
        on_host = np.where(self._overlap, device < hosted, 1.0)
        floored = on_device * (layers < floor) * self._starts
        per_pass = (on_host, 1.0, on_host * self._sequences, on_host * self._prompts, 0.0, floored)
        for number, (name, each) in enumerate(zip(HOST, per_pass, strict=True)):
            weighed = (each * host[:, number])[self._of] * self._weight
            sums = request if name == _REQUEST else np.bincount(self._figure, weighed, figures)
            sloped += sums[:, None] * self._host_matrix[number :: len(HOST)][self.owner]
        return seconds, sloped * _NS


def _changes(given: Sequence[Parameter], names: list[tuple[Labels, str]]) -> Floats:
    """Which parameters change each constant of a run with these labels: a row for each."""
    changes = np.zeros((len(names), len(given)))
    for row, (labels, constant) in enumerate(names):
        of_run = frozenset(labels)
        changes[row] = [parameter.applies(constant, of_run) for parameter in given]
    return changes


# -- the fit


def fit(rows: Iterable[Row], jobs: int) -> tuple[tuple[Factor, ...], list[Sample]]:
    """The factors, and the samples of the second round. jobs: processes."""
    samples = recorded(rows, (), jobs)
    first = fitted_to(samples, ())
    again = _with_response(samples, recorded(rows, first, jobs), first)
    return fitted_to(again, first), again


def predicted(samples: Sequence[Sample], factors: Sequence[Factor]) -> list[float]:
    """Every figure of the samples under these factors, in seconds."""
    table = Table(samples, [Parameter(one.constant, one.where, 1.0) for one in factors])
    seconds: list[float] = table.predict(np.log([one.factor for one in factors])).tolist()
    return seconds


def _with_response(
    before: Sequence[Sample], now: Sequence[Sample], factors: Sequence[Factor]
) -> list[Sample]:
    """`now`, with what each target grows by in `requests`. before: from replays with the defaults.
    now: of rows among them, from replays with `factors`."""
    known = {one.row: one for one in before}
    old = iter(predicted([known[one.row] for one in now], factors))
    new = iter(predicted(now, factors))
    samples = []
    for sample in now:
        default_s = sample.host[_REQUEST] * _NS
        host_s = default_s * total(ENGINE + _REQUEST, frozenset(sample.labels), factors)
        change, targets = host_s - default_s, []
        for target in sample.figures:
            grown = next(new) - next(old)
            if target.what == TTFT and abs(change) >= _LEAST_S:
                requests = min(max(1 + grown / change, target.requests), _MOST_RESPONSE)
                # so that it predicts the same as before where the host takes `host_s`
                rest = target.rest - (requests - target.requests) * host_s
                target = replace(target, requests=requests, rest=rest)
            targets.append(target)
        samples.append(replace(sample, figures=tuple(targets)))
    return samples


def fitted_to(samples: Sequence[Sample], begin: Sequence[Factor]) -> tuple[Factor, ...]:
    """The factors that fit these samples best and change something, rounded as the file has them.
    begin: where the search begins."""
    given = parameters(samples)
    factors = []
    names = [(one, constants_of(one)) for one in samples]
    for parameter, factor in zip(given, np.exp(_solve(samples, given, begin)), strict=True):
        rounded = float(f"{factor:.{_DIGITS}g}")
        if abs(rounded - 1) < _SMALLEST:
            continue
        on = [
            one
            for one, own in names
            if any(parameter.applies(name, frozenset(one.labels)) for name in own)
        ]
        groups = tuple(sorted({one.group for one in on}))
        default = _default(parameter.constant, on)
        factors.append(
            Factor(parameter.constant, parameter.where, rounded, default, len(on), groups)
        )
    return tuple(factors)


def _solve(
    samples: Sequence[Sample], given: Sequence[Parameter], begin: Sequence[Factor]
) -> Floats:
    """The logarithms of the factors that fit best."""
    table = Table(samples, given)
    spread = np.array([one.spread for one in given])
    sizes = Counter(one.group for one in samples)
    mean = len(samples) / len(sizes)
    of_sample = np.array([min(1.0, (sizes[one.group] / mean) ** -0.25) for one in samples])
    weights = of_sample[table.owner]

    def errors(logs: Floats, robust: float) -> Floats:
        off = np.log(table.predict(logs) / table.measured)
        bent = np.sign(off) * np.sqrt(np.log1p((off / robust) ** 2)) * (robust / _ROBUST)
        return np.concatenate([weights * bent, logs / spread])

    def slopes(logs: Floats, robust: float) -> Floats:
        seconds, slope = table.slopes(logs)
        off = np.log(seconds / table.measured)
        far = np.maximum(np.abs(off / robust), 1e-6)
        bend = far / (1 + far**2) / np.sqrt(np.log1p(far**2)) / _ROBUST
        rows = (weights * bend / seconds)[:, None] * slope
        return np.concatenate([rows, np.diag(1 / spread)])

    most = np.array([_MOST_HOST if one.constant.startswith(ENGINE) else _MOST for one in given])
    known = {(one.constant, one.where): one.factor for one in begin}
    logs = np.log([known.get((one.constant, one.where), 1.0) for one in given])
    # a wide loss first: what is far from its rows would count as a bad row in the narrow one
    for robust, part in ((_WIDE, 0.4), (_ROBUST, 0.6)):
        logs = least_squares(
            errors,
            logs,
            slopes,
            bounds=(-1.01 * most, 1.01 * most),
            max_nfev=max(1, round(_STEPS * part)),
            x_scale=spread,
            ftol=_LEAST,
            tr_solver="lsmr",
            args=(robust,),
        ).x
    return logs


def _default(constant: str, samples: Sequence[Sample]) -> float | None:
    """The default that a factor changes, if it is one and the same in all of these samples."""
    kind, _, field = constant.rpartition(".")
    values: set[float | None]
    if constant.startswith(ENGINE):
        values = {float(one.host[field]) for one in samples}
    else:
        values = {getattr(one.kernels.get(kind), field, None) for one in samples}
    return values.pop() if len(values) == 1 else None


def text_of(factors: Sequence[Factor]) -> str:
    """The file, one constant a line."""
    groups = sorted({group for one in factors for group in one.groups})
    names = ("constant", "where", "factor", "default", "rows")
    lines = [
        json.dumps(
            {name: getattr(one, name) for name in names}
            | {"groups": [groups.index(group) for group in one.groups]}
        )
        for one in factors
    ]
    head = f'"format": {FORMAT},\n"groups": {json.dumps(groups, indent=1)},\n'
    return "{\n" + head + '"constants": [\n' + ",\n".join(lines) + "\n]\n}\n"
