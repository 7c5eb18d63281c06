"""What memory and GPUs cost, as the command line writes it: `gpu=2.5/h,host=3/GB`.

A price ends with what it is for, and with `/h` if it is a rent. Without `/h` it is paid once, and
spread over the years that the thing is used (`years=4`). No currency: any, the same for all.

    gpu=2.5/h           a GPU for an hour              gpu=30000        a GPU
    host=3/GB           a gigabyte of host memory      host=0.002/GB/h  a gigabyte for an hour
    storage=0.1/GB      a gigabyte of storage
    h100=3.2/h          an H100 for an hour, where `gpu` is any other one

`LIST_PRICES` is what is assumed where nothing was given.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

UNITS = {"gpu": "", "host": "GB", "storage": "GB"}
YEARS = 4
_HOURS = 365 * 24
_PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)((?:/[A-Za-z]+)*)", re.ASCII)
GIVEN = "the prices that were given"
_EXAMPLE = "gpu=2.5/h,host=3/GB,years=4"


@dataclass(frozen=True, slots=True)
class Prices:
    """per_hour: of a GPU or a gigabyte, by name; only those that are known. source: where they are
    from, for a sentence. currency: empty for any."""

    per_hour: dict[str, float] = field(default_factory=dict)

    source: str = GIVEN
    currency: str = ""

    def of_gpu(self, hardware: str) -> float | None:
        """An hour of one accelerator; None without a price."""
        return self.per_hour.get(hardware, self.per_hour.get("gpu"))

    def cost_per_hour(self, amounts: dict[str, float]) -> float:
        """amounts: of each thing, in its unit. A thing without a price costs nothing."""
        return sum(self.per_hour.get(name, 0.0) * amount for name, amount in amounts.items())


LIST_PRICES = Prices(
    {
        # hyperstack.cloud/gpu-pricing, read on 2026-08-26: on demand, USD for an hour of one GPU
        "a100": 1.60,
        "b200": 6.00,
        "h100": 3.20,
        "h100-pcie": 2.50,
        "h200": 3.99,
        "rtx-pro-6000": 1.85,
        # Google Compute Engine, us-central1, 2018-07-06: n1-highmem-2 (13 GB, 0.1184 USD an hour)
        # less n1-standard-2 (7.5 GB, 0.0950), for a gigabyte
        "host": 0.00425,
        # hyperstack.cloud/gpu-pricing, as above: a gigabyte of SSD for an hour
        "storage": 0.0000968,
    },
    "list prices of 2026-08-26 (accelerators, SSD: Hyperstack) and 2018-07-06 (memory: Google)",
    "USD",
)


def read_prices(text: str, hardware: Collection[str] = ()) -> Prices:
    """hardware: accelerators that may have a price of their own. Raises ValueError for a
    text that is no list of prices."""
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in (*UNITS, "years", *hardware):
            named = [*UNITS, *(["an accelerator by its name"] if hardware else [])]
            raise ValueError(
                f"expected prices of {', '.join(named)} such as {_EXAMPLE}, found {part.strip()!r}"
            )
        if name in given:
            raise ValueError(f"expected one price of {name}, found two")
        given[name] = value
    years = _years(given.pop("years", str(YEARS)))
    per_hour = {name: _per_hour(name, value, years) for name, value in given.items()}
    once = [name for name, value in given.items() if not value.endswith("/h")]
    if not once:
        return Prices(per_hour)
    return Prices(
        per_hour,
        f"{GIVEN} ({', '.join(once)} paid once, over {years:g} years; a rent ends with /h)",
    )


def _years(text: str) -> float:
    if not re.fullmatch(r"\d{1,2}(\.\d{1,3})?", text, re.ASCII) or not float(text):
        raise ValueError(f"expected years above 0 such as 4, found {text!r}")
    return float(text)


def _per_hour(name: str, text: str, years: float) -> float:
    unit = f"/{UNITS[name]}" if UNITS.get(name) else ""
    match = _PRICE.fullmatch(text)
    if not match or match[2] not in (unit, f"{unit}/h"):
        raise ValueError(
            f"expected {name}=AMOUNT{unit} or {name}=AMOUNT{unit}/h, found {name}={text}"
        )
    amount = float(match[1])
    return amount if match[2].endswith("/h") else amount / (years * _HOURS)
