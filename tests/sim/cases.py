"""Small cases for both engines, drawn from a seed: components, pools, policies, orders, faults."""

from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from hicache import models
from hicache.core.components import MambaSettings, SwaSettings
from hicache.core.config import Config
from hicache.devices.base import Direction
from sim import hardware
from sim.content import draw
from sim.engine_profiles import EngineProfile
from sim.options import EngineOptions, WorldOptions

from .rig import Case
from .workloads import PAGE, hybrid, in_sessions, shared_prefixes

MODEL = models.get("llama-3.1-8b")
PROFILE = hardware.get("h100")
T = TypeVar("T")


def crowded(seed: int) -> Case:
    """A case of long answers that start together: small passes, and a window pool for few."""

    def pick(name: str, *values: T) -> T:
        return values[draw(len(values), seed, "crowded", name)]

    window, interval = pick("window", 6, 13, 24), pick("interval", 4, 8)
    gap = pick("gap", 10, 10**7)
    components = pick("components", ("full", "swa"), ("full",), ("full", "swa", "mamba"))
    few = -(-window // PAGE) + 1 + interval // PAGE
    least = {"full": pick("device", 22, 26), "swa": few, "mamba": 3}
    device = tuple(least[name] + (name == "swa") * pick("more", 0, 1, 4) for name in components)
    settings = [SwaSettings(window)] if "swa" in components else []
    config = Config(
        page_size=PAGE,
        device_pages=device,
        host_pages=tuple(pick("host", 0, 12) for _ in components),
        components=components,
        write_policy=pick("policy", "write_through", "write_back"),
        settings=(*settings, *([MambaSettings(interval, 0)] if "mamba" in components else [])),
    )
    budget, growth = pick("budget", 5, 7, 10, 13), pick("growth", 1, 5, 9)
    engine = EngineOptions(token_budget=budget, growth_tokens=growth, layer_groups=2)
    workload = shared_prefixes(900 + seed, 14, longest=44, outputs=40, gap_ns=gap)
    model = hybrid(components, window, MODEL) if len(components) > 1 else MODEL
    options = WorldOptions(checks="every", seed=seed, times="pure-roofline")
    return Case(workload, config, model, PROFILE, engine, options)


def profiled(seed: int) -> Case:
    """A drawn case, on an engine with a drawn profile."""

    def pick(name: str, *values: T) -> T:
        return values[draw(len(values), seed, "profile", name)]

    case = drawn(seed)
    profile = EngineProfile(
        name="drawn",
        batching=pick("batching", "mixed", "separate", "separate"),
        chunked=pick("chunked", True, True, False),
        reserve=pick("reserve", "none", "whole", "estimated"),
        reserve_permille=pick("part", 200, 700, 1000),
        lookahead=pick("lookahead", False, True),
        overlap=pick("overlap", False, True),
        step_gap_ns=pick("gap", 0, 200_000),
        step_host_ns=pick("step", 0, 900_000, 20_000_000),
        per_sequence_host_ns=pick("sequence", 0, 30_000),
        prefill_host_ns=pick("chunk", 0, 400_000),
        request_host_ns=pick("request", 0, 5_000_000),
        request_token_host_ns=pick("token", 0, 1_000),
    )
    engine = replace(case.engine, profile=profile, most_chunk=pick("most", 0, 0, 2 * PAGE))
    return replace(case, engine=engine)


def drawn(seed: int) -> Case:
    """A case of up to 30 requests in small pools."""

    def pick(name: str, *values: T) -> T:
        return values[draw(len(values), seed, name)]

    components = pick(
        "components", ("full",), ("full", "swa"), ("full", "mamba"), ("full", "swa", "mamba")
    )
    window, interval = pick("window", 1, 3, 6, 8, 11, 30, 90), pick("interval", 4, 8, 20)
    device = {
        "full": pick("device", 13, 16, 20, 40),
        "swa": -(-window // PAGE) + 1 + interval // PAGE + pick("swa", 0, 1, 3, 12),
        "mamba": pick("mamba", 1, 2, 3, 5, 9),
    }
    host = {
        "full": pick("host", 0, 3, 9, 60),
        "swa": pick("swa host", 0, 3, 40),
        "mamba": pick("mamba host", 0, 2, 20),
    }
    settings = [SwaSettings(window)] if "swa" in components else []
    config = Config(
        page_size=PAGE,
        device_pages=tuple(device[name] for name in components),
        host_pages=tuple(host[name] if host["full"] else 0 for name in components),
        components=components,
        write_policy=pick("policy", "write_through", "write_back", "write_through_selective"),
        settings=(*settings, *([MambaSettings(interval, 0)] if "mamba" in components else [])),
    )
    engine = EngineOptions(
        token_budget=pick("budget", 4, 16, 64, 8192),
        max_running=pick("running", 1, 3, 100),
        growth_tokens=pick("growth", 1, 6, 64),
        order=pick("order", "fcfs", "priority", "longest-prefix", "fcfs"),
        layer_groups=pick("groups", 1, 3, 4),
        window=pick("compared", 1, 2, 32),
    )
    period = pick("period", 0, 0, 2, 3, 7)

    def faults(number: int, _: Direction) -> bool:
        return bool(period) and number % period == 1

    options = WorldOptions(
        checks="every",
        seed=seed,
        times="pure-roofline",
        lag_ns=pick("lag", 0, 5_000, 50_000_000),
        faults=faults,
        speed=pick("speed", Fraction(1), Fraction(3, 7), Fraction(5)),
    )
    gap_ns = pick("gap", 10**5, 10**7, 3 * 10**8)
    workload = in_sessions(shared_prefixes(seed, 1 + draw(30, seed, "count"), gap_ns=gap_ns))
    model = hybrid(components, window, MODEL) if len(components) > 1 else MODEL
    return Case(workload, config, model, PROFILE, engine, options)
