"""A process of vLLM with a small Llama. Its first line of input is a `Setting` of test_vllm.py; it
does the operations of each further line, and answers with a line. Runs in vLLM's Python."""

import json
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorProm
from vllm.lora.request import LoRARequest

from hicache.vllm import worker

LAYERS, HIDDEN, KV, RANK = 2, 128, 64, 8


def make_model(place: Path, seed: int) -> None:
    torch.manual_seed(seed)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 256, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"eos_token_id": None, "bos_token_id": None}
    LlamaForCausalLM(LlamaConfig(vocab_size=1000, **sizes, **heads, **ends)).save_pretrained(place)


def make_adapter(place: Path, seed: int, alpha: int) -> None:
    """Written in place: the files keep their names."""
    place.mkdir(parents=True, exist_ok=True)
    draw, tensors = torch.Generator().manual_seed(seed), {}
    for layer in range(LAYERS):
        for name, rows in (("q_proj", HIDDEN), ("k_proj", KV), ("v_proj", KV)):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for part, shape in (("A", (RANK, HIDDEN)), ("B", (rows, RANK))):
                tensors[f"{at}.lora_{part}.weight"] = torch.randn(shape, generator=draw) * 0.3
    save_file(tensors, place / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": alpha, "bias": "none"}
    config["target_modules"] = ["q_proj", "k_proj", "v_proj"]
    (place / "adapter_config.json").write_text(json.dumps(config))


class Served:
    """One engine. hits, preempted_hits: tokens that vLLM takes from the connector, as it tells it;
    without those of loads that failed in landed."""

    def __init__(
        self, folder: str, weights: str, connectors: Any, faults: float, cached: bool
    ) -> None:
        """connectors: settings of each that is inside a MultiConnector; a single mapping stands
        alone; None: without a connector. cached: with vLLM's prefix cache."""
        self._folder = Path(folder)
        for seed, name in enumerate(("m", "n")):
            if not (self._folder / name).exists():
                make_model(self._folder / name, seed)
        more: dict[str, Any] = {}
        if connectors is not None:
            more["kv_transfer_config"] = KVTransferConfig(
                **(
                    _connector_config(connectors)
                    if isinstance(connectors, dict)
                    else _connector_config(
                        {"connectors": [_connector_config(connector) for connector in connectors]},
                        "MultiConnector",
                    )
                )
            )
        self._llm = LLM(
            model=str(self._folder / weights),
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            max_model_len=640,
            block_size=32,
            max_num_seqs=6,
            max_num_batched_tokens=256,
            num_gpu_blocks_override=36 if cached else 200,
            enable_prefix_caching=cached,
            enable_lora=True,
            max_lora_rank=RANK,
            max_loras=2,
            max_cpu_loras=4,
            disable_log_stats=False,
            **more,
        )
        self._scheduler = self._llm.llm_engine.engine_core.engine_core.scheduler
        self._draw, self._faults = random.Random(0), faults
        self._numbers: dict[str, int] = {}  # of adapters
        self._replaced: set[str] = set()
        self._taken: dict[str, int] = {}
        self.hits = self.preempted_hits = self.landed = 0
        self._stats: dict[str, float] = {}
        self._connectors = []
        if connectors is not None:
            self._connectors = getattr(self._scheduler.connector, "_connectors", None) or [
                self._scheduler.connector
            ]
            self._checker()

    def _checker(self) -> None:
        connector, real = self._scheduler.connector, worker.ConnectorWorker.poll
        value, stats = connector.update_state_after_alloc, connector.get_kv_connector_stats

        def update_state_after_alloc(request: Any, blocks: Any, tokens: int) -> None:
            value(request, blocks, tokens)
            if tokens:
                self._taken[request.request_id] = tokens
                self.landed += tokens
                self.hits += 0 if request.num_preemptions else tokens

        def get_kv_connector_stats() -> Any:
            result = stats()
            for item in [] if result is None else _flat(result):
                for name, number in item.data.items():
                    self._stats[name] = self._stats.get(name, 0) + number
            return result

        def poll(worker: Any) -> Any:
            loads, (answer, loaded) = dict(worker._waiting), real(worker)
            fail = {
                transfer
                for transfer, name in loads.items()
                if name in loaded and self._draw.random() < self._faults
            }
            failed = answer.failed | {loads[transfer] for transfer in fail}
            done = tuple((at, 0 if at in fail else offer) for at, offer in answer.done)
            self.landed -= sum(self._taken[name] for name in failed)
            return replace(answer, done=done, failed=failed), loaded

        connector.update_state_after_alloc = update_state_after_alloc
        connector.get_kv_connector_stats = get_kv_connector_stats
        worker.ConnectorWorker.poll = poll

    def ask(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All at once. Each has tokens, salt, adapter and most (tokens of its answer)."""
        prompts: list[dict[str, Any]] = [
            {"prompt_token_ids": request["tokens"]}
            | ({"cache_salt": request["salt"]} if request["salt"] else {})
            for request in requests
        ]
        sampling = [
            SamplingParams(
                detokenize=False,
                ignore_eos=True,
                temperature=0,
                logprobs=2,
                max_tokens=request["most"],
            )
            for request in requests
        ]
        adapters = [self._adapter(request["adapter"]) for request in requests]
        result = self._llm.generate(prompts, sampling, use_tqdm=False, lora_request=adapters)
        return [
            {
                "tokens": list(item.outputs[0].token_ids),
                "hits": item.num_cached_tokens,
                "logprobs": [
                    sorted((each.logprob for each in row.values()), reverse=True)
                    for row in item.outputs[0].logprobs
                ],
            }
            for item in result
        ]

    def _adapter(self, name: str) -> LoRARequest | None:
        if not name:
            return None
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        path = str(self._folder / name)
        return LoRARequest(name, number, path, load_inplace=name in self._replaced)

    def adapter(self, name: str, seed: int, alpha: int) -> None:
        """Put another adapter where one of this name is, or none, and load it as a server does."""
        self.settle()
        place = self._folder / name
        make_adapter(place, seed, alpha)
        if name in self._numbers:
            self._replaced.add(name)
            self._llm.llm_engine.add_lora(self._adapter(name))
            self.reset()

    def weights(self, name: str, connector: bool) -> None:
        """Put other weights into the running engine. connector: it is reset, too."""
        self.settle()
        path = str(self._folder / name)
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
        self.reset(connector)

    def reset(self, connector: bool = False) -> None:
        self.settle()
        assert self._llm.reset_prefix_cache(reset_connector=connector)

    def settle(self) -> None:
        """Until copies and stores have ended."""
        while self._scheduler.has_requests():
            self._llm.llm_engine.step()
            time.sleep(0.001)

    def counts(self) -> dict[str, Any]:
        """What the connectors have counted, and what vLLM has."""
        self.settle()
        metrics = self._llm.get_metrics()
        stats = {metric.name: metric.value for metric in metrics if hasattr(metric, "value")}
        # as a second engine of the process does, which registers its counters, too
        KVConnectorProm(self._llm.llm_engine.vllm_config, ["model_name", "engine"], {})
        counted: dict[str, float] = {}
        for connector in self._connectors:
            for name, number in connector._scheduler.counts.items():
                counted[name] = counted.get(name, 0) + number
        return {
            "counted": counted,
            "told": {name: self._stats.get(name, 0) for name in counted},
            "landed": self.landed,
            "hits": self.hits,
            "vllm_hits": stats["vllm:external_prefix_cache_hits"],
            "preemptions": stats["vllm:num_preemptions"],
        }


def _connector_config(settings: dict[str, Any], name: str = "HicacheConnector") -> dict[str, Any]:
    place = {} if name == "MultiConnector" else {"kv_connector_module_path": "hicache.vllm"}
    both = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": settings}
    return both | place


def _flat(stats: Any) -> list[Any]:
    nested = [datum for datum in stats.data.values() if hasattr(datum, "data")]
    return nested or [stats]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")  # the engine prints on standard output
    os.dup2(2, 1)
    served = Served(**json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        items = [getattr(served, load.pop("do"))(**load) for load in json.loads(line)]
        print(json.dumps(items), file=answers, flush=True)


if __name__ == "__main__":
    main()
