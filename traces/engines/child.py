"""The process of vLLM: it serves one model, and answers questions in lines of JSON.

    open       make the model's folder if it is not there, start the engine
    generate   send requests at their times, step the engine until all have ended
    idle       step it until nothing is under way (copies and stores go on between requests)
    chunk      compute at most so many tokens in a step
    drop       empty vLLM's own prefix cache
    state      blocks of vLLM that are in use, and what the connector has counted and holds
    close      end the engine

Runs in the Python where vLLM is installed, so it imports nothing that is not there: of this project
the connector.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import transformers
import vllm
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig

from hicache.core.errors import CallerError
from hicache.vllm.groups import groups_of
from traces.engines.passes import CLOCKS, Passes

_SAID_EVERY = 32  # requests
_answers = os.fdopen(os.dup(1), "wb")  # the engine prints on standard output


def main() -> None:
    """Answer until the input ends."""
    os.dup2(2, 1)
    served: Served | None = None
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        what = asked.pop("do")
        answer: dict[str, Any]
        try:
            if what == "open":
                served = Served(asked)
                answer = served.facts()
            elif served is None:
                answer = {"refused": f"expected open before {what}"}
            else:
                answer = getattr(served, what)(**asked)
        except Exception as error:
            last = str(error).strip().splitlines() or [""]
            answer = {"refused": f"{type(error).__name__}: {last[-1]}"}
        _say(answer | {"done": True})


def _say(line: dict[str, Any]) -> None:
    _answers.write(json.dumps(line).encode() + b"\n")
    _answers.flush()


class Served:
    """One engine with one model."""

    def __init__(self, asked: dict[str, Any]) -> None:
        """asked: folder, family (classes, config; None: the folder has a model), seed of the
        weights, engine (arguments of `LLM`), connector (its `kv_connector_extra_config`, or None),
        clock (of `CLOCKS`)."""
        folder = Path(asked["folder"])
        if asked["family"] is not None:
            _make(folder, asked["family"], asked["seed"])
        self._clock = CLOCKS[asked.get("clock", "wall")]()
        if asked.get("connector") is not None:
            asked["engine"]["kv_transfer_config"] = KVTransferConfig(
                kv_connector="HicacheConnector",
                kv_connector_module_path="hicache.vllm",
                kv_role="kv_both",
                kv_connector_extra_config=asked["connector"],
            )
        began = time.perf_counter()
        self._llm = LLM(model=str(folder), skip_tokenizer_init=True, **asked["engine"])
        self._engine = self._llm.llm_engine
        self._core: Any = self._engine.engine_core.engine_core
        self._scheduler = self._core.scheduler
        self._passes = Passes(self._engine, self._scheduler, self._clock.now)
        self._most = self._scheduler.max_num_scheduled_tokens
        self._number = self._preemptions = 0
        self._preempt, self._scheduler._preempt_request = (
            self._scheduler._preempt_request,
            self._preempted,
        )
        self._step_core, self._core.step_fn = self._core.step_fn, self._stepped_core
        self._executed = False
        self._start_s = time.perf_counter() - began

    def _step(self) -> list[Any]:
        """One step. After one that computed nothing it waits 1 ms, as vLLM's serving process does
        (EngineCoreProc), so that the threads that load get on."""
        outputs: list[Any] = self._engine.step()
        self._passes.stepped()
        if not self._executed and self._scheduler.has_requests():
            self._clock.yielded(0.001)
        return outputs

    def _stepped_core(self) -> Any:
        answer = self._step_core()
        self._executed = answer[1]
        return answer

    def _preempted(self, *given: Any, **named: Any) -> Any:
        self._preemptions += 1
        return self._preempt(*given, **named)

    def facts(self) -> dict[str, Any]:
        """What a replay must know: blocks, their tokens by group, and the scheduler's limits."""
        config = self._scheduler.kv_cache_config
        limits = self._scheduler.scheduler_config
        return {
            "start_s": self._start_s,
            "blocks": config.num_blocks,
            "page": self._scheduler.block_size,
            "page_bytes": _page_bytes(config),
            "groups": [
                {
                    "kind": type(group.kv_cache_spec).__name__,
                    "block": group.kv_cache_spec.block_size,
                    "window": getattr(group.kv_cache_spec, "sliding_window", None) or 0,
                    "layers": len(group.layer_names),
                }
                for group in config.kv_cache_groups
            ],
            "retention": config.prefix_cache_retention_interval,
            "release": vllm.__version__,
            "async_scheduling": bool(limits.async_scheduling),
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "threads": torch.get_num_threads(),
            "model": _shape(self._core.vllm_config),
        }

    def generate(
        self,
        requests: list[dict[str, Any]],
        logprobs: int | None = 1,
        die_step: int = 0,
        at_once: int = 0,
        passes: bool = False,
    ) -> dict[str, Any]:
        """requests: tokens, max_tokens, and if given at_s (when it is sent; 0: at once), at_step
        (steps before it is sent, if others are under way), after (the place of the request that
        must have ended; at_s counts from there), extends (its tokens and its answer come before
        these), salt, and abort_after (output tokens, after which it is aborted) or abort_step
        (steps). die_step: the process kills itself after so many steps. at_once: so many are under
        way, and the next is sent when one has ended; 0: no limit. Returns for each its tokens, log
        probabilities, cached tokens, prompt tokens, and times in seconds from the beginning: due,
        sent, admitted, first and last token; the processor time of all threads; with passes also
        those (see passes). Says now and then how many have ended."""
        clock = self._clock
        began, busy = clock.now(), time.process_time()
        self._passes.take()
        followers: defaultdict[int, list[int]] = defaultdict(list)
        for at, one in enumerate(requests):
            followers[max(-1, one.get("after", -1))].append(at)
        waiting = [(requests[at].get("at_s", 0.0), at) for at in followers[-1]]
        waiting.sort(reverse=True)
        names: dict[str, int] = {}
        found: list[dict[str, Any]] = [{} for _ in requests]
        prompts: dict[int, list[int]] = {}
        aborts: defaultdict[int, list[int]] = defaultdict(list)
        steps = ended = 0
        while waiting or names:
            now = clock.now() - began
            while waiting and waiting[-1][0] <= now and len(names) < (at_once or math.inf):
                due, at = waiting[-1]
                asked = requests[at]
                if names and asked.get("at_step", 0) > steps:
                    break
                waiting.pop()
                prompt = asked["tokens"]
                if asked.get("extends"):
                    prompt = prompts[asked["after"]] + found[asked["after"]]["tokens"] + prompt
                prompts[at] = prompt
                found[at] = {"due_s": due, "sent_s": now, "tokens": [], "aborted": False}
                found[at]["prompt"] = len(prompt)
                names[self._send(asked | {"tokens": prompt}, logprobs)] = at
                if asked.get("abort_step"):
                    aborts[asked["abort_step"] + steps].append(at)
            if not names:
                clock.wait(waiting[-1][0] - now)
                continue
            outputs = self._step()
            steps += 1
            if steps == die_step:
                os.kill(os.getpid(), signal.SIGKILL)
            now = clock.now() - began
            for output in outputs:
                at = names.get(output.request_id, -1)
                if at >= 0:
                    _note(found[at], output, now)
                    after = requests[at].get("abort_after")
                    if not output.finished and after and len(found[at]["tokens"]) >= after:
                        self._engine.abort_request([output.request_id])
                        found[at]["aborted"] = True
                    if output.finished or found[at]["aborted"]:
                        admitted = self._passes.admitted.get(output.request_id)
                        found[at]["admitted_s"] = None if admitted is None else admitted - began
                        del names[output.request_id]
                        waiting += [
                            (now + requests[later].get("at_s", 0.0), later)
                            for later in followers[at]
                        ]
                        waiting.sort(reverse=True)
                        ended += 1
                        if not ended % _SAID_EVERY:
                            _say({"ended": ended})
            for name in [name for name, at in names.items() if at in aborts[steps]]:
                self._engine.abort_request([name])
                found[names.pop(name)]["aborted"] = True
        busy = time.process_time() - busy
        answer = {"answers": found, "steps": steps, "wall_s": clock.now() - began}
        answer["processor_s"] = busy
        return answer | ({"passes": self._passes.take()} if passes else {})

    def _send(self, asked: dict[str, Any], logprobs: int | None) -> str:
        self._number += 1
        name = str(self._number)
        prompt: dict[str, Any] = {"prompt_token_ids": asked["tokens"]}
        if asked.get("salt"):
            prompt["cache_salt"] = asked["salt"]
        params = SamplingParams(
            detokenize=False,
            ignore_eos=True,
            temperature=0,
            logprobs=logprobs,
            max_tokens=asked.get("max_tokens", 1),
        )
        self._engine.add_request(name, prompt, params)
        return name

    def idle(self) -> dict[str, Any]:
        """Step until nothing is under way. Returns the steps."""
        steps = 0
        while self._scheduler.has_requests():
            self._step()
            steps += 1
        return {"steps": steps}

    def chunk(self, tokens: int) -> dict[str, Any]:
        """Compute at most so many tokens in a step from here on; 0: as many as at first."""
        self._scheduler.max_num_scheduled_tokens = tokens or self._most
        return {}

    def drop(self) -> dict[str, Any]:
        """Empty vLLM's own prefix cache, once nothing is under way."""
        self.idle()
        return {"dropped": bool(self._llm.reset_prefix_cache())}

    def state(self) -> dict[str, Any]:
        """What is in use now, and how often a request was preempted."""
        pool = self._scheduler.kv_cache_manager.block_pool
        connector = self._scheduler.connector
        decider = getattr(connector, "_decider", None)
        answer: dict[str, Any] = {
            "free_blocks": pool.get_num_free_blocks(),
            "blocks": pool.num_gpu_blocks - 1,  # vLLM keeps one that has nothing
            "requests": len(self._scheduler.requests),
            "preemptions": self._preemptions,
        }
        if decider is not None:
            view = decider.driver.core.view
            answer |= {
                "broken": connector.broken,
                "counts": decider.counts.as_dict,
                "held_blocks": decider.orders.held_blocks,
                "core_requests": len(view.requests),
                "core_flights": len(view.flights),
            }
        return answer

    def close(self) -> dict[str, Any]:
        """End the engine."""
        self._engine.engine_core.shutdown()
        return {}


def _shape(config: Any) -> dict[str, Any]:
    """What a description of the model must have."""
    model, ranks = config.model_config, config.parallel_config
    return {
        "layers": model.get_num_layers(ranks),
        "kv_heads": model.get_total_num_kv_heads(),
        "heads": model.get_num_attention_heads(ranks),
        "head_elements": model.get_head_size(),
        "hidden": model.get_hidden_size(),
        "vocabulary": model.get_vocab_size(),
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def _note(found: dict[str, Any], output: Any, now: float) -> None:
    """Note what a step has brought for a request."""
    [one] = output.outputs
    if one.token_ids and "first_s" not in found:
        found["first_s"] = now
    found["last_s"] = now
    found["tokens"] = list(one.token_ids)
    found["cached"] = output.num_cached_tokens
    if one.logprobs:
        found["logprobs"] = [
            row[token].logprob for row, token in zip(one.logprobs, one.token_ids, strict=False)
        ]
        if len(one.logprobs[0]) > 1:
            found["top"] = [
                {token: entry.logprob for token, entry in row.items()} for row in one.logprobs
            ]


def _page_bytes(config: Any) -> int:
    """Bytes of a page of the connector; 0 for a model that it does not carry."""
    try:
        return sum(groups_of(config).page_bytes.values())
    except CallerError:
        return 0


def _make(folder: Path, family: dict[str, Any], seed: int) -> None:
    """Make the model's folder, whole or not at all."""
    if folder.exists():
        return
    config, model = (getattr(transformers, name) for name in family["classes"])
    torch.manual_seed(seed)
    made = model(config(**family["config"]))
    if family["engine"].get("dtype") == "bfloat16":
        made = made.to(torch.bfloat16)
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    draft.parent.mkdir(parents=True, exist_ok=True)
    made.save_pretrained(draft)
    try:
        draft.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(draft)


if __name__ == "__main__":
    main()
