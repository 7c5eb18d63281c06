"""What commands refuse: in one line on standard error that names the option or the word, with exit
code 2, before any file is written."""

import os
import shlex
import shutil
from pathlib import Path

import pytest

from .rig import Capsys, fails, mooncake, write

SIZE = "size turns.jsonl --limit 5 --model llama-3.1-8b"
PINS = "replay turns.jsonl --mode hits --page-size 64 --device-pages 60"
MANY = ",".join(map(str, range(1, 102)))
REFUSED = {
    "replay trace.jsonl": {
        "--model nothing": "expected one of deepseek-v3",
        "--page-size 100": "512-token blocks, or a multiple of it, found 100; use one of 1, 2, 4",
        "--device-tokens 5X": "a number such as 1M",
        "--device-pages 9": "trace.jsonl:1: expected a request of at most 9 pages",
        "--model deepseek-v3": "expected weights and a page of each pool within 72 GB",
        "--components full,swa=191": "expected at least 1088, a window in",
        "--engine vllm?slots=3": "?token_budget=N&max_running=N or one of them, found 'slots=3'",
        "--model gpt-oss-120b --components full": "expected full,swa, for which gpt-oss-120b has",
        "--model deepseek-v4-flash --tp 4 --page-size 64": "found 64; give 256",
        "--model deepseek-v4-flash --tp 4 --kv-dtype fp8": "--kv-dtype: expected a model with",
        "--tp 3": "--tp: expected a divisor",
        "--model qwen3.5-397b-a17b --tp 8 --device-tokens 30K": "which have 80.0 GB; raise tp",
        "--device-pages 1G": "pools: expected at most 67108864 pages each, found 2000000000",
        "--why 1": "from 0 to 0, found 1",
        "--why 0 --json x": "--why: expected no --json",
        "--mode hits --timeline x": "--timeline: expected --mode timed",
        "--speed 0": "expected a number above 0",
    },
    "replay": {
        "--engine vlm": "--engine: expected one of plain, sglang, trtllm, vllm, found 'vlm'",
        "--tp 8 --dcp 2": "--dcp: expected a divisor of 1, the ranks that have",
        "--model deepseek-v3 --tp 8 --dcp 8 --page-size 60": "expected a multiple of 8, the tokens",
        "--pp 33": "--pp: expected 1 to 32 stages",
        "--pp 2 --replicas 1:1": "--replicas 1:1: expected --pp 1, found 2",
        "--tp 2 --ep 2": "--ep: expected 1, because llama-3.1-8b has no routed",
        "--jsn x": "did you mean --json? (see hicache replay --help)",
        "--host-bytes 512": "found 512 bytes; give more, or no host memory; did you mean 512GB?",
        **{f"--slo {item}": "--slo: expected" for item in ("''", "ttft", "ttft=2", "speed=2s")},
        **{f"--slo {item}": "--slo: " for item in ("ttft=2s,ttft=3s", "ttft=0s", "ttft=2s,")},
        **{
            f"--arrivals {item}": "--arrivals: "
            for item in ("speedy", "poisson:cv=2", "gamma:cv=x")
        },
    },
    "replay turns.jsonl": {
        "--replicas 2:0": "--replicas: expected 1 to 1024",
        "--router least-loaded": "--router: expected replicas to choose from, found one",
        "--replicas 2:2 --mode hits": "--replicas 2:2: expected --mode timed, found hits",
        "--replicas 2:2 --components full,swa": "expected full attention alone, found full,swa",
        "--replicas 2:2 --storage sim:": "--replicas 2:2: expected no --storage, found one",
        "--replicas 2 --flush-every-round host": "expected one replica, found several",
        "--device-tokens 64K --host-pages 100 --exclusive": "--exclusive: expected a ",
        "--host-ratio 0 --write-policy write_back --exclusive": "--exclusive: expected a ",
    },
    "replay turns.jsonl --storage": {
        "sim:read=0": "sim:read: expected bytes per second such as 50GB, found '0'",
        "sim:latncy=3s": "found 'latncy=3s'; did you mean latency?",
        "sim:loss=1.5": "sim:loss: expected a share from 0 to 1, found '1.5'",
        "sim:size=1M": "--storage: size: expected room for a page or state",
        "sim: --host-ratio 0": "--storage: expected a host pool, found none",
        "file:d?size=5MB": "--storage: size: expected room for a page or state, 8388608 bytes",
    },
    PINS: {
        "--pin 0": "expected REQUEST:TOKENS",
        "--pin 0:10": "expected 64 to 256 tokens",
        "--pin 0:256,1:256,2:256,3:256,4:256": "beside the largest request",
        "--pin 0:256@host": "expected at most 0 pages on host",
        "--pin 0:256 --replicas 2": "expected one replica, found several",
    },
    "models": {
        "no-such-model": "model: expected one of deepseek-v3",
        "deepseek-v4-pro --page-size 64": "--page-size: expected a multiple of 128",
    },
    "curve trace.jsonl": {
        "--capacities 0": "expected at least 1, found '0'",
        "--page-size 100": "expected a page size that divides its 512-token blocks",
        "-o curve.png": "expected a name that ends in .svg, found curve.png",
    },
    "generate": {
        "bench-multiturn --request-rate 0 -o out": "expected requests per second such as 16",
        "multiturn --clients 256T -o out": "--clients: expected 1 to 16777216, found '256T'",
    },
    "sweep turns.jsonl -o s.jsonl": {
        "--device-pages 1,2": "expected a request of at most 1 pages of 64 tokens",
        "--tp 1,2 --dcp 2": "(point tp=1)",
        "--picture a.png --host-bytes 0,1GB": "--picture: expected a name that ends",
        "--mode hits --scheduler fcfs,priority": "--scheduler: expected --mode timed",
        "--host-ratio 1 --storage file:there": "--storage: expected sim:",
        f"--seed {MANY} --concurrency {MANY}": "expected at most 10,000 points, found 10,201",
    },
    SIZE: {
        "": "--slo: expected the limits that requests must keep, found none",
        "--slo ttft=2s --mode hits": "--mode hits: a machine is judged by its times",
        "--slo ttft=2s --hardware h100 --tp 1 --sample 0.0001": "--sample: expected requests in",
        "--slo ttft=2s --hardware h100 --tp 1 --device-pages 1": "turns.jsonl:",
        "--slo ttft=2s -o a.html --points a.html": "--points: expected another file",
        "--slo ttft=2s --today 3xh100,tp=2": "expected a machine such as 2xh100,tp=2,host=512GB",
        "--slo ttft=2s --hardware l40s,h100": "--price: expected a price of l40s, found none",
    },
    "": {
        "": "expected COMMAND, one of size, compare",
        "--nothing": "option: expected one of -h, --help, --version, found",
        "repaly": "did you mean replay?",
        "convert trace.jsonl": "convert: expected TRACE and --output FILE",
        "size turns.jsonl --limit 5 --slo ttft=2s --model deepseek-v3 --hardware h100 --tp 1": (
            "found 673.2 GB of weights"
        ),
    },
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (f"{command} {more}", message)
        for command, table in REFUSED.items()
        for more, message in table.items()
    ],
    ids=lambda item: item[-60:],
)
def test_a_command_that_cannot_be_is_refused(
    words: str, text: str, turns: str, capsys: Capsys
) -> None:
    write(Path("trace.jsonl"), mooncake([1, 2], 600))
    shutil.copy(turns, "turns.jsonl")
    assert text in fails(capsys, *shlex.split(words))
    assert sorted(os.listdir()) == ["trace.jsonl", "turns.jsonl"]
