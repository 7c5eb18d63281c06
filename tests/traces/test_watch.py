"""`hicache watch`: pages of metrics are read strictly, differences and percentiles are right, what
fails is said once, and predicted hits are those of a replay of the same requests."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from traces.cli import main
from traces.replaying.options import ReplayOptions
from traces.watching import predicting, scraping
from traces.watching.names import FIGURES, NEEDED, SERVERS, SGLANG, VLLM
from traces.watching.predicting import Asked, Begun, Predictor, lines_of, log_at, with_sizes
from traces.watching.readings import Histogram, Reading, between, read, times_of
from traces.watching.scraping import MOST_BYTES, Unread, parsed, url_of

from . import pages
from .pages import AFTER, BEFORE, BLOCK, Answer, Handler, histogram, logged, prompts, serving
from .rig import Capsys, Patch, fails

pytestmark = pytest.mark.usefixtures("signals")


@pytest.fixture(autouse=True)
def at_once(request: pytest.FixtureRequest, monkeypatch: Patch) -> None:
    """Predictions need no process of their own, which takes seconds to start; one test has it."""
    if "process" not in request.node.name:
        alone = lambda _, work, jobs, *__, **___: (work(job) for job in jobs)  # noqa: E731
        monkeypatch.setattr(predicting, "results", alone)


def reading(text: str) -> Reading:
    return read(parsed(text))


def watched(capsys: Capsys, folder: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The document of a watch, and what it printed."""
    out = folder / "watch.json"
    assert main(["watch", *words, "--json", str(out)]) == code
    printed = capsys.readouterr()
    assert not printed.err.replace("predicting all that the log has\n", "")  # if that takes long
    found: dict[str, Any] = json.loads(out.read_text())
    return found, printed.out


def interrupting(page: str) -> Callable[[Handler], None]:
    """Answers, and ends the watch as Ctrl-C does."""

    def answer(handler: Handler) -> None:
        handler.text(page)
        os.kill(os.getpid(), signal.SIGINT)

    return answer


# -- pages


def test_a_page_is_read_with_escapes_times_and_declarations() -> None:
    page = parsed(
        "# HELP a what it is\n# TYPE a counter\n# TYPE h histogram\n\n"
        'b{x="a\\"},\\\\b",y="li\\nne"} 1e3 1700000000\r\nb{y="z",} -2\nc NaN\nd +Inf\n'
    )
    assert page["a"] == {}
    assert page["h_bucket"] == {}
    assert page["b"] == {(("x", 'a"},\\b'), ("y", "li\nne")): 1000.0, (("y", "z"),): -2.0}
    assert math.isnan(page["c"][()])
    assert page["d"] == {(): math.inf}


@pytest.mark.parametrize(
    "line",
    [
        "<html>",
        "a",
        "a one",
        "a 1_000",
        "a 0x10",
        "a infinity",
        "a{x=1} 1",
        'a{x="1} 1',
        'a{x="1"y="2"} 1',
        'a{x="1",x="2"} 1',
        "1a 1",
        "a 1 2 3",
        "a{} {} 1",
        "\x1b[2Ja 1 x",
        "} " * 5000,
        'a{x="' + "\\" * 5001,
    ],
)
def test_a_line_that_is_no_sample_is_named(line: str) -> None:
    with pytest.raises(Unread, match="line 2: expected NAME") as failed:
        parsed(f"ok 1\n{line}\n")
    assert len(str(failed.value)) < 500
    assert str(failed.value).isprintable()


def test_a_sample_that_is_there_twice_is_refused() -> None:
    with pytest.raises(Unread, match="line 2: expected each sample once"):
        parsed('a{x="1",y="2"} 1\na{y="2",x="1"} 1\n')


@pytest.mark.one_in(64)
@given(st.text(max_size=200) | st.text('ab{}"\\=, 1\n', max_size=200))
def test_any_text_is_a_page_or_one_line(text: str) -> None:
    said = "a page"
    try:
        parsed(text)
    except Unread as error:
        said = str(error)
    assert said.isprintable()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://host", "http://host:80/metrics"),
        ("https://host/", "https://host:443/metrics"),
        ("http://[::1]:9/m?a=1", "http://[::1]:9/m?a=1"),
    ],
)
def test_a_url_is_completed(text: str, url: str) -> None:
    assert str(url_of(text)) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:8000",
        "ftp://h",
        "file:///etc/passwd",
        "http://",
        "http://h:99999",
        "http://h\n",
        "http://u:secret@h",
        "http://h/#x",
        "http://h/a b",
        "http://h/\x00",
        "http://[::1",
    ],
)
def test_what_is_no_url_is_refused(text: str, capsys: Capsys) -> None:
    assert "secret" not in fails(capsys, "watch", text)


# -- figures


def test_a_page_of_a_real_server() -> None:
    found = reading(BEFORE.read_text())
    assert (found.server, found.engines, found.missing, found.odd) == (VLLM, 1, (), ())
    assert (found.page_tokens, found.capacity_tokens) == (32, 6400)
    assert found.counters["requests"] == found.histograms["ttft"].counts[-1] == 20
    assert between(None, found).hit_rate == 11264 / 13654
    assert {*found.histograms} == {"ttft", "tpot", "itl", "queue", "e2e"}


def test_what_a_real_server_did_between_two_pages() -> None:
    before, after = (reading(path.read_text()) for path in (BEFORE, AFTER))
    assert after.follows(before)
    done = between(before, after)
    assert done.counters["requests"] == done.times["ttft"].count == done.times["tpot"].count
    assert done.counters["requests"] == after.counters["requests"] - 20
    for times in done.times.values():
        for one in times.by_percent.values():
            assert one.value is None or one.low <= one.value <= one.high  # type: ignore[operator]


def test_a_page_of_sglang_as_its_source_has_it() -> None:
    found = reading(pages.sglang(10))
    assert (found.server, found.missing) == (SGLANG, ())
    assert (found.page_tokens, found.capacity_tokens) == (1, 4096)
    done = between(None, found)
    assert done.hit_rate == 0.4
    assert done.counters["requests"] == 10
    assert done.times["ttft"].mean == 0.25
    assert reading(pages.sglang(0)).missing == ()  # declared, and nothing was counted yet
    assert between(None, reading(pages.sglang(0))).hit_rate is None


def test_engines_are_added_up_and_shares_are_means() -> None:
    both = pages.sglang(10) + "".join(
        line.replace('dp_rank="0"', 'dp_rank="1"') + "\n"
        for line in pages.sglang(10).splitlines()
        if 'dp_rank="0"' in line
    )
    found = reading(both)
    assert found.engines == 2
    assert found.capacity_tokens == 8192
    assert found.page_tokens == 1
    assert found.gauges["usage"] == 0.5
    assert found.gauges["running"] == 4


def test_older_names_count_where_newer_ones_lack() -> None:
    page = pages.vllm(4, 10, 40).replace("vllm:prefix_cache", "vllm:gpu_prefix_cache")
    page = page.replace("inter_token_latency", "time_per_output_token")
    found = reading(page)
    assert found.missing == ()
    assert between(None, found).hit_rate == 0.25


def test_every_needed_figure_has_names_of_both_servers() -> None:
    for server in SERVERS:
        assert {*server.names} <= {*FIGURES}
        assert {*NEEDED} <= {*server.names}
        for known in server.names.values():
            assert all(one.name.startswith(server.beginning) and one.source for one in known)


@pytest.mark.parametrize("page", ["", "up 1\n", "vllm:a 1\nsglang:a 1\n"])
def test_a_page_of_another_server_is_refused(page: str) -> None:
    with pytest.raises(Unread, match="expected metrics of vllm or sglang"):
        reading(page)


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf"])
def test_a_number_that_no_counter_has_is_left_out(value: str) -> None:
    page = pages.vllm(4, 10, 40).replace('hits_total{engine="0"} 10', f"hits_total {value}")
    found = reading(page)
    assert "hit_tokens" not in found.counters
    assert found.odd == (
        "vllm:prefix_cache_hits_total: expected numbers of at least 0, found others.",
    )


@pytest.mark.parametrize(
    "counts", [{"1": 5, "+Inf": 4}, {"1": 5}, {"x": 1, "+Inf": 2}, {"1": -1, "+Inf": 2}]
)
def test_buckets_that_do_not_ascend_are_left_out(counts: dict[str, int]) -> None:
    name = "vllm:request_queue_time_seconds"
    page = pages.vllm(4, 10, 40) + histogram(name, {"+Inf": 0, **counts}, 1.0)
    if "+Inf" not in counts:
        page = page.replace(f'{name}_bucket{{le="+Inf"}} 0\n', "")
    found = reading(page)
    assert "queue" not in found.histograms
    assert [one.partition(":")[0] for one in found.odd] == ["vllm"]


# -- differences and percentiles


def of(values: list[float], bounds: list[float]) -> Histogram:
    counts = [float(sum(value <= bound for value in values)) for bound in bounds]
    return Histogram((*bounds, math.inf), (*counts, float(len(values))), sum(values))


TIMES = st.lists(st.floats(0, 20), max_size=60)
BOUNDS = st.lists(st.floats(0.001, 10), min_size=1, max_size=8, unique=True).map(sorted)


@pytest.mark.one_in(16)
@given(TIMES, TIMES, BOUNDS)
def test_percentiles_lie_in_the_bucket_of_the_observed_one(
    earlier: list[float], later: list[float], bounds: list[float]
) -> None:
    found = times_of(of(earlier + later, bounds).since(of(earlier, bounds)))
    if not later:
        assert found is None
        return
    assert found is not None
    assert found.count == len(later)
    assert found.mean == pytest.approx(float(np.mean(later)), abs=1e-6)
    for label, one in found.by_percent.items():
        true = float(np.percentile(later, int(label[1:]), method="inverted_cdf"))
        if one.value is None:
            assert true > bounds[-1] == one.low
        else:
            assert one.high is not None
            assert one.low <= true <= one.high
            assert one.low <= one.value <= one.high


def test_percentiles_are_those_of_prometheus() -> None:
    """As histogram_quantile: linear within the bucket, from 0 in the first."""
    [one] = [times_of(Histogram((0.1, 0.5, 1.0, math.inf), (10.0, 30.0, 36.0, 40.0), 20.0))]
    assert one is not None
    p50, p90, p99 = (one.by_percent[label] for label in ("p50", "p90", "p99"))
    assert (p50.value, p50.low, p50.high) == (pytest.approx(0.3), 0.1, 0.5)
    assert (p90.value, p90.low, p90.high) == (pytest.approx(1.0), 0.5, 1.0)
    assert (p99.value, p99.low, p99.high) == (None, 1.0, None)


def test_a_counter_and_a_histogram_that_fell_were_reset() -> None:
    before, after = reading(pages.vllm(40, 100, 400)), reading(pages.vllm(6, 9, 60))
    assert not after.follows(before)
    done = between(before, after)
    assert done.counters["requests"] == 6
    assert done.hit_rate == 9 / 60
    assert done.times["ttft"].count == 6
    again = reading(pages.vllm(40, 100, 400, started=2.0))
    assert not again.follows(before)  # the server says so, whatever its counters are
    assert before.follows(before)


def test_nothing_happened() -> None:
    page = reading(pages.vllm(40, 100, 400))
    done = between(page, page)
    assert done.counters["requests"] == 0
    assert done.hit_rate is None
    assert done.times == {}


# -- the command, once


def log_of(path: Path, count: int, **shape: int) -> str:
    path.write_text("".join(logged(at, ids) for at, ids in enumerate(prompts(count, **shape))))
    return str(path)


def hits_of(count: int, blocks: int) -> int:
    """Tokens that an LRU cache of so many blocks hits, block by block; a page behind another one is
    the colder of the two."""
    cache: dict[tuple[int, ...], None] = {}
    hits = 0
    for ids in prompts(count):
        chain = [tuple(ids[: at + BLOCK]) for at in range(0, len(ids) - BLOCK + 1, BLOCK)]
        leading = next((at for at, page in enumerate(chain) if page not in cache), len(chain))
        hits += leading * BLOCK
        for page in reversed(chain):
            cache.pop(page, None)
            cache[page] = None
        while len(cache) > blocks:
            del cache[next(iter(cache))]
    return hits


def test_once_says_what_the_server_did_and_what_the_model_says_of_it(
    tmp_path: Path, capsys: Capsys
) -> None:
    log = log_of(tmp_path / "server.log", 24)
    asked, hits = 24 * (20 * BLOCK + 16), hits_of(24, 65)
    with serving(pages.vllm(24, hits, asked, blocks=66)) as (url, paths):
        found, printed = watched(capsys, tmp_path, url, "--log", log, "--once")
    assert paths == ["/metrics"]
    assert found["complete"]
    assert found["since_start"]
    predicted = found["predicted"]
    assert (predicted["requests"], predicted["input_tokens"]) == (24, asked)
    assert (predicted["page_tokens"], predicted["device_pages"]) == (BLOCK, 65)
    assert predicted["hit_tokens"] == {"device": hits, "host": 0}
    assert found["measured"]["hit_rate"] == predicted["hit_rate"] == hits / asked
    assert predicted["latency_s"] is None  # no model was named
    assert predicted["memory"]["enough"] is None
    assert "More memory would have brought nothing" in printed


def test_what_more_memory_brings_is_that_of_an_lru_cache_of_that_size(
    tmp_path: Path, capsys: Capsys
) -> None:
    log = log_of(tmp_path / "server.log", 24)
    with serving(pages.vllm(24, 0, 15744, blocks=46)) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--log", log, "--once")
    memory = found["predicted"]["memory"]
    now, most = memory["now"]["hit_tokens"], 21 * 20 * BLOCK  # all but the first of each document
    assert memory["now"]["pages"] == 45
    for point in (memory["now"], memory["enough"], *memory["points"]):
        assert point["hit_tokens"] == hits_of(24, point["pages"])
        assert point["tokens"] == point["pages"] * BLOCK
        assert point["bytes"] is None
    assert memory["points"][-1]["hit_tokens"] == most
    enough = memory["enough"]["pages"]
    assert hits_of(24, enough) >= now + 0.9 * (most - now) > hits_of(24, enough - 1)
    command = f"hicache size {log} --model MODEL --slo"
    assert "".join(command.split()) in "".join(printed.split())  # lines end where they are full
    fewer = memory["enough"]["hit_tokens"] - now
    assert f"{fewer:,} prompt tokens less to compute" in " ".join(printed.split())
    assert "Give --model and --hardware for predicted times and for bytes." in printed


def test_with_a_model_there_are_times_and_bytes(tmp_path: Path, capsys: Capsys) -> None:
    log = log_of(tmp_path / "server.log", 24)
    model = ("--model", "llama-3.1-8b", "--hardware", "h100")
    with serving(pages.vllm(24, 0, 15744, blocks=42)) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--log", log, "--once", *model)
        other, _ = watched(
            capsys, tmp_path, url, "--log", log, "--once", *model, "--device-tokens", "4096"
        )
    predicted = found["predicted"]
    assert predicted["engine"].startswith("vllm")
    assert {*predicted["latency_s"]} == {"ttft", "queue", "e2e", "tpot", "itl"}
    assert 0 < predicted["latency_s"]["ttft"]["p50"] < 1
    assert predicted["memory"]["now"]["bytes"] == 41 * BLOCK * 131072
    said = " ".join(printed.split())
    assert "The log has no answers: each is taken to have 8 tokens" in said
    assert "Predicted times are of llama-3.1-8b on h100. Expected error" in said
    assert other["predicted"]["device_pages"] == 4096 // BLOCK


@pytest.mark.one_in(32)
def test_a_prediction_in_a_process_is_the_same(tmp_path: Path, capsys: Capsys) -> None:
    log = log_of(tmp_path / "server.log", 24)
    with serving(pages.vllm(24, 0, 15744, blocks=66)) as (url, _):
        found, _ = watched(capsys, tmp_path, url, "--log", log, "--once")
    assert found["predicted"]["hit_tokens"]["device"] == hits_of(24, 65)


@pytest.mark.one_in(16)
def test_a_prediction_in_a_process_can_be_stopped(tmp_path: Path) -> None:
    log = log_at(log_of(tmp_path / "server.log", 2000), "vllm")
    options = with_sizes(ReplayOptions(), "vllm", BLOCK, 65 * BLOCK, None)
    predictor = Predictor()
    predictor.begin(Asked(options, log, Begun(0, None), None, None))
    assert predictor.busy
    predictor.stop()
    assert not predictor.busy
    assert predictor.found is None
    assert predictor.failed == ""
    assert multiprocessing.active_children() == []


def test_without_a_log_nothing_is_predicted(tmp_path: Path, capsys: Capsys) -> None:
    with serving(BEFORE.read_text()) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--once")
    assert found["predicted"] is None
    assert "Without --log" in printed
    assert "11,264" in printed


def test_a_metric_that_is_missing_is_named_with_its_versions(
    tmp_path: Path, capsys: Capsys
) -> None:
    lines = pages.vllm(4, 10, 40).splitlines(keepends=True)
    page = "".join(line for line in lines if "prefix_cache_hits" not in line)
    with serving(page) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--once")
    names = ["vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"]
    assert found["missing"] == [{"figure": "hit_tokens", "names": names}]
    assert "The page has no prompt tokens that hit: vllm:prefix_cache_hits_total (vLLM from" in (
        " ".join(printed.split())
    )


def test_a_log_of_lengths_drives_load_and_predicts_no_hits(tmp_path: Path, capsys: Capsys) -> None:
    log = tmp_path / "server.log"
    meta = {"prompt_tokens": 64, "completion_tokens": 5, "e2e_latency": 0.25}
    log.write_text(
        "".join(
            json.dumps(
                {
                    "timestamp": f"2026-11-26T00:00:{at:02}.5",
                    "event": "request.finished",
                    "obj": {},
                    "out": {"meta_info": meta},
                }
            )
            + "\n"
            for at in range(12)
        )
    )
    with serving(pages.sglang(12)) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--log", str(log), "--once")
    assert found["predicted"]["requests"] == 12
    assert found["predicted"]["hit_rate"] is found["predicted"]["memory"] is None
    assert "lengths only: no hits can be predicted" in printed


def test_a_log_of_sglang_is_read_with_pages_of_its_blocks(tmp_path: Path, capsys: Capsys) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "".join(
            json.dumps(
                {
                    "timestamp": f"2026-11-26T00:00:{at:02}.5",
                    "event": "request.finished",
                    "rid": str(at),
                    "obj": {"input_ids": ids},
                    "out": {
                        "meta_info": {
                            "prompt_tokens": len(ids),
                            "completion_tokens": 5,
                            "e2e_latency": 0.25,
                        }
                    },
                }
            )
            + "\n"
            for at, ids in enumerate(prompts(12))
        )
    )
    with serving(pages.sglang(12)) as (url, _):
        found, _ = watched(capsys, tmp_path, url, "--log", str(log), "--once")
    predicted = found["predicted"]
    assert (found["server"], predicted["requests"], predicted["page_tokens"]) == ("sglang", 12, 16)
    assert predicted["device_pages"] == 4096 // 16
    assert predicted["hit_tokens"]["device"] == 9 * 20 * BLOCK


@pytest.mark.one_in(8)
def test_requests_of_an_earlier_life_of_the_server_are_left_out(
    tmp_path: Path, capsys: Capsys
) -> None:
    log = log_of(tmp_path / "server.log", 60)
    with serving(pages.vllm(20, 0, 100)) as (url, _):
        found, _ = watched(capsys, tmp_path, url, "--log", log, "--once")
    assert found["predicted"]["requests"] == 20
    with serving(pages.vllm(160, 0, 100)) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--log", log, "--once")
    assert found["predicted"]["unlogged_requests"] == 100
    assert "The log lacks 100 requests" in printed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INFO 11-26 00:00:01 [x.py:1] Received request r: params: x\n", "prompt_token_ids"),
        (logged(0, [1, 2]).replace("[1, 2]", "[1, x]"), "a list of integers"),
        ("\n\n", ""),
        ("", ""),
        (logged(0, [1] * 64)[:-20], ""),
    ],
)
def test_a_log_that_cannot_be_read_leaves_the_metrics(
    text: str, said: str, tmp_path: Path, capsys: Capsys
) -> None:
    log = tmp_path / "server.log"
    log.write_text(text)
    with serving(pages.vllm(4, 10, 40)) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--log", str(log), "--once")
    assert found["predicted"] is None
    assert found["measured"]["requests"] == 4
    assert said in printed
    assert ("Not predicted" in printed) == bool(said)
    assert "Nothing was predicted: the log has no request" in printed


def test_only_whole_lines_of_a_log_count(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("one\ntwo\nthr")
    assert lines_of(log_at(str(path), "vllm")) == 2


@pytest.mark.parametrize("kind", ["nothing", "folder", "pipe"])
def test_a_log_that_is_no_file_is_refused(kind: str, tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "log"
    {"nothing": lambda: None, "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with serving(pages.vllm(4, 10, 40)) as (url, _):
        assert "--log" in fails(capsys, "watch", url, "--log", str(path), "--once")


# -- a server that cannot be read


def _huge(handler: Handler) -> None:
    handler.text(b"#" * (MOST_BYTES + 1))


def _endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"#" * (1 << 20))
    except OSError:
        pass


def _hanging(handler: Handler) -> None:
    handler.connection.recv(1)  # until the other side is gone


def _dripping(handler: Handler) -> None:
    """Says something all the time and never ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n")
    handler.connection.settimeout(0.02)
    while True:
        try:
            if not handler.connection.recv(1):
                return
        except TimeoutError:
            pass
        except OSError:
            return
        try:
            handler.wfile.write(b"#")
        except OSError:
            return


def _short(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"a 1\n")


def _redirecting(handler: Handler) -> None:
    handler.text("", 302, Location="http://127.0.0.1:1/\x1belsewhere")


BAD: dict[str, tuple[Answer, str]] = {
    "html": ("<html>login</html>", "line 1: expected NAME"),
    "other": ("up 1\n", "expected metrics of vllm or sglang"),
    "bytes": (b"\xff\xfe", "expected UTF-8 text, found byte 0xff"),
    "huge": (_huge, "expected at most 16 MiB"),
    "endless": (_endless, "expected at most 16 MiB"),
    "short": (_short, "expected a whole answer, found a part"),
    "redirect": (_redirecting, "found a redirect to"),
    "status": (lambda handler: handler.text("no", 503), "found HTTP status 503"),
    "no http": (lambda handler: handler.wfile.write(b"SSH-2.0\r\n"), "expected an answer over"),
    "closed": (lambda handler: None, "expected an answer over HTTP"),
    "hang": (_hanging, "expected an answer within 0.3 s"),
    "drip": (_dripping, "within 0.3 s"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_that_is_no_page_is_one_line(
    name: str, capsys: Capsys, monkeypatch: Patch
) -> None:
    if name in ("hang", "drip"):
        monkeypatch.setattr(scraping, "TIMEOUT_S", 0.3)
    answer, said = BAD[name]
    with serving(answer) as (url, paths):
        assert said in fails(capsys, "watch", url)
    assert len(paths) <= 1


def test_nobody_there_is_one_line(capsys: Capsys) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        assert "Connection refused" in fails(capsys, "watch", f"http://127.0.0.1:{port}")


# -- the command, for a while


def test_what_fails_meanwhile_is_said_once_and_the_watch_goes_on(
    tmp_path: Path, capsys: Capsys
) -> None:
    page = pages.vllm
    with serving(
        page(10, 100, 1000),
        page(20, 300, 1500),
        *("<html>",) * 3,
        lambda handler: handler.text("no", 503),
        page(30, 500, 2000),
        "<html>",
        interrupting(page(40, 700, 2500)),
    ) as (url, paths):
        words = (url, "--interval", "1ms")
        found, printed = watched(capsys, tmp_path, *words, code=130)
    assert not found["complete"]
    assert found["measured"]["requests"] == 30
    assert found["measured"]["hit_rate"] == 600 / 1500
    assert found["restarts"] == 0
    assert printed.count("line 1: expected NAME") == 2
    assert printed.count("HTTP status 503") == 1
    assert len(paths) >= 9


def test_a_server_that_is_started_anew_begins_anew(tmp_path: Path, capsys: Capsys) -> None:
    page = pages.vllm
    with serving(
        page(40, 100, 1000),
        page(50, 300, 1500),
        lambda handler: None,
        page(2, 10, 100, started=2.0),
        interrupting(page(5, 40, 200, started=2.0)),
    ) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--interval", "1ms", code=130)
    assert found["restarts"] == 1
    assert found["since_start"]
    assert found["measured"]["requests"] == 5
    assert found["measured"]["hit_rate"] == 0.2
    assert printed.count("started anew") == 1


def test_a_log_is_followed_and_its_earlier_requests_only_warm_the_cache(
    tmp_path: Path, capsys: Capsys
) -> None:
    log = tmp_path / "server.log"
    lines = [logged(at, ids) for at, ids in enumerate(prompts(24))]
    log.write_text("".join(lines[:9]) + lines[9][:50])

    def growing(handler: Handler) -> None:
        log.write_text("".join(lines))
        interrupting(pages.vllm(24, 900, 9000))(handler)

    with serving(pages.vllm(9, 300, 3000), growing) as (url, _):
        words = (url, "--log", str(log), "--interval", "1ms")
        found, _ = watched(capsys, tmp_path, *words, code=130)
    predicted = found["predicted"]
    assert (predicted["requests"], predicted["warming_requests"]) == (15, 9)
    assert found["measured"]["requests"] == 15
    assert predicted["hit_tokens"]["device"] == 15 * 20 * BLOCK  # 64 blocks hold three documents


def test_a_log_that_begins_anew_is_said_and_counted_from_there(
    tmp_path: Path, capsys: Capsys
) -> None:
    log = tmp_path / "server.log"
    log_of(log, 40)

    def rotated(handler: Handler) -> None:
        log.rename(tmp_path / "old")
        log_of(log, 6)
        handler.text(pages.vllm(40, 0, 9000))

    with serving(pages.vllm(40, 0, 9000), rotated, interrupting(pages.vllm(46, 100, 9500))) as (
        url,
        _,
    ):
        words = (url, "--log", str(log), "--interval", "1ms")
        found, printed = watched(capsys, tmp_path, *words, code=130)
    assert printed.count("The log began anew") == 1
    assert found["predicted"]["requests"] == found["measured"]["requests"] == 6
    assert found["predicted"]["unlogged_requests"] == 40


def test_a_time_ends_it(tmp_path: Path, capsys: Capsys) -> None:
    with serving(pages.vllm(10, 100, 1000), pages.vllm(12, 200, 1100)) as (url, _):
        found, printed = watched(capsys, tmp_path, url, "--for", "1ms", "--interval", "1ms")
    assert found["complete"]
    assert found["measured"]["hit_rate"] == 1.0
    assert "The server hit 100.0 % of 100 prompt tokens." in printed


def test_a_line_a_minute_where_there_is_no_terminal(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("traces.commands.watch._LINE_EVERY_S", 0.0)
    with serving(
        pages.vllm(10, 100, 1000),
        pages.vllm(14, 200, 1400),
        *("<html>",) * 3,
        interrupting(pages.vllm(16, 300, 1500)),
    ) as (url, _):
        _, printed = watched(capsys, tmp_path, url, "--interval", "1ms", code=130)
    said = ": 4 requests, hit rate 25.0 %, running 0, waiting 0, TTFT p50 under 100 ms"
    assert len(re.findall(rf"^\d:\d\d:\d\d{re.escape(said)}$", printed, re.MULTILINE)) == 1
    assert ": 0 requests" not in printed  # no line without a scrape


def test_a_terminal_has_one_live_table(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with serving(
        pages.vllm(10, 100, 1000),
        "\x1b]0;title\x07",
        pages.vllm(14, 200, 1400),
        interrupting(pages.vllm(16, 300, 1500)),
    ) as (url, _):
        _, printed = watched(capsys, tmp_path, url, "--interval", "1ms", code=130)
    assert printed.count("predicted") > 2  # drawn again and again, and at the end
    assert "\x1b]0;title" not in printed
    assert printed.count("line 1: expected NAME") >= 1


def test_the_document_goes_to_standard_output_alone(capsys: Capsys) -> None:
    with serving(pages.vllm(10, 100, 1000)) as (url, _):
        assert main(["watch", url, "--once", "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["kind"] == "watch"
    assert "hit rate" in printed.err


def test_patience_is_longer_than_any_wait() -> None:
    assert scraping.TIMEOUT_S < PATIENCE_S
