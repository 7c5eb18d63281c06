"""`hicache twin --engine`: the hits of a real engine beside those that the simulator predicts.

Contains its options, the two runs, and what is printed and written. Does not make tokens, ask the
engine or simulate (see engines), or find causes (see engines/causes).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from hicache.core.errors import CallerError

from ..engines.hits import causes
from ..engines.hits.causes import Difference, differences
from ..engines.hits.cut import Cut, cut
from ..engines.hits.runs import Limits, asked, blocks_for, fewest_blocks, longest, predicted
from ..engines.models import FAMILIES
from ..engines.vllm import MODELS, Vllm, python_of
from ..formats.base import Trace, need_identity
from ..terminal import options as read
from ..terminal.progress import progress
from ..terminal.rows import option
from ..terminal.tables import print_sentences
from ._engine_options import RealEngineOptions

_BLOCK = 32  # tokens; what the CPU's attention takes
_CONTEXT = 32768  # tokens that the small models take
_THREADS = 1  # hits do not depend on them, and waiting for another costs most of the time
_SHOWN = 20
_KINDS = ("FullAttentionSpec", "SlidingWindowSpec")
_KNOWN = "full attention and sliding windows"
_NOTHING = (
    "No request hit anything, so nothing was compared: give more blocks with --device-pages, or a "
    "trace whose prompts repeat."
)


@dataclass(frozen=True)
class EngineTwinOptions(RealEngineOptions):
    HEADING = "the hits of a real engine, instead of a device"

    most_blocks: int = option(
        "keep the first N blocks of a prompt; 0 is all", *read.COUNT_OR_0, default=40
    )
    most_output: int = option(
        "generate at most N tokens; 0 is as many as the trace, in proportion",
        *read.COUNT_OR_0,
        default=8,
    )
    at_once: int = option(
        "a closed loop: N requests are under way, and the next one is sent when one has ended",
        *read.COUNT,
        default=1,
    )
    cut: str | None = option("also write the trace as it was cut, for hicache replay", *read.OUTPUT)


def twin(
    options: EngineTwinOptions, trace: Trace, blocks: int | None, command: str
) -> tuple[dict[str, Any], str]:
    """Runs both. Returns the results, and the text of the trace as it was cut."""
    groups = FAMILIES[options.family].groups
    if not groups:
        raise CallerError(f"--family: expected {_KNOWN}, found {options.family}, which has states")
    python = python_of(options.python or "")
    need_identity(trace, "--engine")
    small, how, text = cut(trace, _BLOCK, options.most_blocks, options.most_output)
    paged = small.paged(_BLOCK)
    if options.cut and not text:
        raise CallerError(
            "--cut: expected a trace with block ids, found one of tokens, which is not cut; leave "
            "the option out"
        )
    if options.at_once > 1 and paged.knows_output:
        raise CallerError(
            f"--at-once: expected 1 for a trace that says what was generated, found "
            f"{options.at_once}; leave the option out"
        )
    if (most := longest(paged)) > _CONTEXT:
        raise CallerError(
            f"{trace.path}: expected requests of at most {_CONTEXT} tokens, found {most}; give "
            "--most-blocks, or a trace with shorter ones"
        )
    wanted, need = blocks or blocks_for(paged, groups), fewest_blocks(paged, groups)
    if wanted < need:
        each = f", in {groups} groups of layers" if groups > 1 else ""
        raise CallerError(
            f"--device-pages: expected at least {need} for the largest request{each}, found "
            f"{wanted}"
        )
    settings = {"num_gpu_blocks_override": wanted + 1, "max_model_len": max(most + 1, _BLOCK)}
    with Vllm(
        python, options.family, folder=str(MODELS), engine=settings, threads=_THREADS, pinned=False
    ) as engine:
        facts = engine.open()
        _check(facts, options.family)
        with progress("engine", len(paged.jobs)) as report:
            hits, took = asked(engine, paged, options.at_once, report)
        engine.ask({"do": "close"}, 60.0)
    limits = Limits.of(facts, options.at_once)
    with progress("simulator", len(paged.jobs)) as report:
        told = predicted(paged, limits, command, report)
    found = differences(
        paged,
        small.line_numbers,
        limits,
        hits,
        told.hits,
        lambda other: predicted(paged, other, command, lambda done: None),
    )
    document = {
        "trace": {
            "path": trace.path,
            "requests": len(paged.jobs),
            "input_tokens": paged.jobs.input_tokens,
            "cut": how._asdict() if text else None,
        },
        "engine": {
            "name": options.engine,
            "release": facts["release"],
            "family": options.family,
            "groups": facts["groups"],
            "start_s": facts["start_s"],
            **took,
        },
        "limits": asdict(limits) | {"block": _BLOCK},
        "simulator": {
            "digest": told.digest,
            "preempted": told.preempted,
            "checked": told.checked,
        },
        "hit_tokens": {"engine": sum(hits), "simulator": sum(told.hits)},
        "equal": len(hits) - len(found),
        "causes": dict(Counter(one.cause for one in found)),
        "differences": [asdict(one) for one in found],
        "requests": {
            "input_tokens": paged.jobs.input_lengths.tolist(),
            "engine": hits,
            "simulator": told.hits,
        },
    }
    return document, text


def _check(facts: dict[str, Any], family: str) -> None:
    """Raises CallerError for groups that the simulator does not have: another release may group
    the layers in another way."""
    found = [(one["kind"], one["block"]) for one in facts["groups"]]
    if len(found) != FAMILIES[family].groups or {*found} - {(kind, _BLOCK) for kind in _KINDS}:
        kinds = ", ".join(f"{kind} of {block}" for kind, block in found)
        raise CallerError(
            f"--family: expected {FAMILIES[family].groups} groups of {_KNOWN} in blocks of "
            f"{_BLOCK} tokens, found {family} with {kinds}; name another family"
        )


def print_hits(document: dict[str, Any], out: TextIO) -> None:
    """Prints the results."""
    of, engine, limits = document["trace"], document["engine"], document["limits"]
    told = [f"{of['path']}: {of['requests']:,} requests, {of['input_tokens']:,} prompt tokens"]
    if of["cut"]:
        told.append(_how(Cut(**of["cut"])))
    print("; ".join(told), file=out)
    print(
        f"{engine['name']} {engine['release']}, {engine['family']} "
        f"({FAMILIES[engine['family']].what}): {limits['blocks']:,} blocks of {limits['block']} "
        f"tokens, {limits['at_once']} at once, {engine['steps']:,} steps in "
        f"{engine['wall_s']:.1f} s",
        file=out,
    )
    row = "{:<22}{:>16}{:>16}".format
    print(row("", "engine", "simulator"), file=out)
    hit = document["hit_tokens"]
    print(row("hit tokens", f"{hit['engine']:,}", f"{hit['simulator']:,}"), file=out)
    share = document["equal"] / of["requests"]
    checked = document["simulator"]["checked"]
    how = (
        f"every invariant checked after each of {checked:,} operations"
        if checked
        else f"{len(engine['groups'])} groups of layers in one pool of blocks"
    )
    print(
        f"equal for {document['equal']:,} of {of['requests']:,} requests ({share:.2%}); "
        f"{document['simulator']['preempted']:,} preempted in the simulator, {how}",
        file=out,
    )
    for one in document["differences"][:_SHOWN]:
        apart = Difference(**one)
        print(
            f"  request {apart.request} (line {apart.line}, {apart.input_tokens:,} tokens): engine "
            f"{apart.engine:,}, simulator {apart.simulator:,}: {apart.cause}",
            file=out,
        )
    if len(document["differences"]) > _SHOWN:
        print(f"  and {len(document['differences']) - _SHOWN:,} more (--json)", file=out)


def _how(how: Cut) -> str:
    most = f", at most {how.most_blocks} blocks of a prompt" if how.most_blocks else ""
    output = f", {how.most_output} of an answer" if how.most_output else ""
    return f"cut from blocks of {how.of} tokens to {how.block}{most}{output}"


def said(document: dict[str, Any]) -> list[str]:
    """What it means, in sentences."""
    if not any(document["hit_tokens"].values()):
        return [_NOTHING]
    if not document["differences"]:
        return ["The simulator counts the hits of every request as the engine does."]
    return [
        f"{count:,} of {document['trace']['requests']:,} differ, {cause}: {causes.WORDS[cause]}."
        for cause, count in sorted(document["causes"].items())
    ]


def show(document: dict[str, Any], out: TextIO) -> None:
    """Prints all of it."""
    print_hits(document, out)
    print_sentences("In words", said(document), out)
