"""Every trace format in traces/formats: its sample is recognised, and its keys are those of one
sequence of tokens at every page size."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from hicache.core.errors import CallerError
from tests.tokenizer import tiny_tokenizer
from tests.traces.formats_drawn import SAMPLES
from traces.formats import FORMATS, parse
from traces.formats.base import Trace
from traces.formats.reading import About, Lines

Reader: TypeAlias = Callable[..., Trace]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_tokenizer(tmp_path_factory.mktemp("text"))


@pytest.fixture
def read(tokenizer: str) -> Reader:
    def read(text: str, name: str = "auto") -> Trace:
        lines = Lines("sample", text.encode().splitlines(keepends=True))
        return parse(lines, name, about=About(tokenizer=tokenizer))

    return read


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_keeps_the_contract(name: str, read: Reader) -> None:
    sample = SAMPLES[name]
    trace = read(sample)
    assert FORMATS[name].summary
    assert trace.format == name
    assert list(read(sample, name).jobs) == list(trace.jobs)
    assert len(read(sample).jobs) == 2
    assert len(trace.line_numbers) == len(trace.jobs) == 2
    for size in (1, 16, 64, 512):
        paged = trace.paged(size)
        for job in trace.jobs:
            final = job.input_length + job.output_length - 1
            key = paged.key(job, final)
            assert key.pages == final // size
            # a key of less is the beginning of a key of more
            for length in (0, 1, min(size, final), job.input_length):
                assert paged.key(job, length) == key.first(length // size)
            prompt = paged.prompt_key(job)
            assert prompt.pages == paged.prompt_pages[job.index]
            assert prompt.pages <= -(-job.input_length // size)
            known = min(prompt.pages, job.input_length // size)
            assert prompt.first(known) == key.first(known)
            assert len(paged.chain(job)) >= prompt.pages
        first, second = trace.jobs
        if trace.identity and len(paged.chain(first)):
            assert paged.chain(first)[0] == paged.chain(second)[0] or size == 512
        if not trace.identity:
            assert not paged.prompt_pages.any()
    with pytest.raises(CallerError, match="page"):
        trace.paged(0)
