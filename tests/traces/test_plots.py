"""Charts in characters: as wide as the terminal, without colour where there is none, and true."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.text import Text

from traces.cli import main
from traces.plots.canvas import Axis, Line, Part, bars, lines
from traces.plots.charts import print_curve

from .rig import Capsys, Patch

PLAIN = Axis("", "{:g}".format)


def rows_of(texts: list[Text]) -> list[str]:
    return [text.plain for text in texts]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def curve(points: int = 9) -> dict[str, Any]:
    rates = [place / points for place in range(points)]
    return {
        "capacities_tokens": [512 << place for place in range(points)],
        "policies": {"lru": {"hit_rates": rates}, "optimum": {"hit_rates": sorted(rates)}},
    }


def test_a_line_goes_from_corner_to_corner() -> None:
    drawn = rows_of(lines([Line("up", [0, 10], [0, 5])], PLAIN, PLAIN, 40, 9))
    assert drawn[0].startswith(" 5 |")
    assert drawn[0].endswith("a")
    assert drawn[8].endswith("|aaa")
    columns = [row.index("a") for row in drawn[:9]]
    assert columns == sorted(columns, reverse=True)
    assert drawn[-1] == "  a up"


def test_a_step_leaves_no_hole_and_a_line_ends_where_its_points_do() -> None:
    step = Line("step", [0, 5, 5, 10], [0, 0, 4, 4])
    drawn = rows_of(lines([step, Line("half", [0, 5], [4, 4])], PLAIN, PLAIN, 43, 9))[:9]
    assert all(re.search("[ab]", row) for row in drawn)
    assert max(row.rfind("b") for row in drawn) < 30


def test_bars_have_the_length_of_their_values() -> None:
    parts = [Part("hit", "#", "blue"), Part("lost", "x", "red")]
    drawn = rows_of(bars(["one", "two"], [[10, 20], [30, 0]], parts, 45))
    assert drawn[0] == "one |##########xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    assert drawn[1] == "two |####################"
    assert drawn[2:] == ["  # hit", "  x lost"]


@pytest.mark.parametrize("width", [30, 60, 200])
def test_no_row_is_wider_than_the_terminal(width: int, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    print_curve(curve(), out)
    assert "\x1b[" in out.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert max(map(len, plain.splitlines())) <= width


def test_no_colour_without_a_terminal_or_with_no_color(monkeypatch: Patch) -> None:
    piped = io.StringIO()
    print_curve(curve(), piped)
    assert "\x1b" not in piped.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    print_curve(curve(), out)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", out.getvalue())


@pytest.mark.parametrize(
    "drawn", [[], [Line("none", [], [])], [Line("flat", [3, 3], [0, 0])], [Line("0", [0], [1])]]
)
@pytest.mark.parametrize("log", [False, True])
def test_odd_data_is_drawn(drawn: list[Line], log: bool) -> None:
    assert lines(drawn, Axis("x", "{:g}".format, log), PLAIN, 50)


@pytest.mark.one_in(8)
def test_replay_draws_its_times_and_tokens(capsys: Capsys) -> None:
    assert main(["replay", "--limit", "60", "--check", "off", "--plot"]) == 0
    printed = capsys.readouterr().out
    assert "Share of requests by time to first token" in printed
    assert re.search(r"Prompt tokens admitted in each \S+ (m?s|requests): ", printed)
    assert "  # device hits" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert main(["replay", "--limit", "60", "--mode", "hits", "--check", "off", "--plot"]) == 0
    printed = capsys.readouterr().out
    assert "time to first token" not in printed
    assert re.search(r"Prompt tokens admitted in each 3 requests: ", printed)
