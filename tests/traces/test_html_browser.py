"""The HTML report in a real browser, at two widths, light and dark: drawn, in bounds, offline.

Chromium is started twice, without a display. Each time it shows a page with the report in two
frames, one as wide as a telephone; a probe in each frame tells what was drawn there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.needs import missing
from tests.patience import PATIENCE_S
from traces.html import render

from .test_html_report import folder, hostile, whole

__all__ = ["folder", "whole"]

WIDTHS = (390, 1280)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr"),
    "--virtual-time-budget=5000",
)
PROBE = """
addEventListener("load", () => {
  const told = () => {
    const charts = [...document.querySelectorAll(".chart")];
    const shown = (one) => one.querySelectorAll(
      ".scatterlayer .trace, .barlayer .trace").length;
    const rest = document.documentElement;
    const seen = {
      width: innerWidth,
      drawn: rest.dataset.drawn || "",
      traces: Object.fromEntries(charts.map((one) => [one.id, shown(one)])),
      heights: charts.map((one) => one.getBoundingClientRect().height),
      overflow: rest.scrollWidth - innerWidth,
      background: getComputedStyle(document.body).backgroundColor,
      ink: getComputedStyle(document.body).color,
      paper: document.querySelector(".chart .main-svg").style.background,
      loaded: performance.getEntriesByType("resource").map((one) => one.name),
      forged: document.querySelectorAll("img").length,
    };
    parent.postMessage(JSON.stringify(seen), "*");
  };
  const wait = (left) => document.documentElement.dataset.drawn || !left
    ? setTimeout(told, 50) : setTimeout(() => wait(left - 1), 50);
  wait(200);
});
"""
FRAMES = """<!DOCTYPE html><body style="margin:0"><pre id="told"></pre>
{frames}
<script>
addEventListener("message", (event) => {{
  document.getElementById("told").textContent += event.data + "\\n";
}});
</script></body>"""


def browser() -> str:
    """Chromium's path; without one the test is left out, and fails where CI is true."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    return path or missing("no chromium on PATH: apt-get install chromium")


def probed(text: str) -> str:
    """The page with the probe, which its policy then allows."""
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    text = text.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    return text.replace("</body></html>", f"<script>{PROBE}</script></body></html>")


def looked_at(folder: Path, text: str, *flags: str) -> tuple[list[dict[str, Any]], str]:
    """What the probes told, and the lines of the console."""
    (folder / "report.html").write_text(probed(text))
    frames = "\n".join(
        f'<iframe src="report.html" width="{width}" height="900" style="border:0"></iframe>'
        for width in WIDTHS
    )
    (folder / "frames.html").write_text(FRAMES.format(frames=frames))
    for attempt in range(3):  # a browser that dies of a signal is begun again
        done = subprocess.run(
            [
                *(browser(), *FLAGS, *flags, "--window-size=1700,1900"),
                *(f"--user-data-dir={folder / f'profile-{attempt}'}", "--dump-dom"),
                (folder / "frames.html").as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode >= 0:
            break
    told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told is not None, done.stderr[-2000:]
    plain = told[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
    found = [json.loads(line) for line in plain.splitlines()]
    console = "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)
    return sorted(found, key=lambda one: one["width"]), console


def lightness(colour: str) -> float:
    """Of `rgb(r, g, b)`, from 0 to 1."""
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 765


@pytest.mark.parametrize(
    ("theme", "flags"),
    [("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))],
)
def test_the_report_is_drawn_in_a_browser(
    theme: str, flags: tuple[str, ...], whole: dict[str, Any], tmp_path: Path
) -> None:
    document = whole if theme == "light" else hostile(whole)
    found, console = looked_at(tmp_path, render(document), *flags)
    assert [one["width"] for one in found] == list(WIDTHS)
    for page in found:
        assert page["drawn"] == "all"
        assert {name: count for name, count in page["traces"].items() if not count} == {}
        assert page["traces"]["curve"] == 6
        assert page["traces"]["cdf"] == 3
        assert min(page["heights"]) > 100
        assert page["overflow"] <= 0
        assert page["forged"] == 0
        assert page["loaded"] == []
        assert abs(lightness(page["ink"]) - lightness(page["background"])) > 0.7
        assert (lightness(page["background"]) < 0.2) == (theme == "dark")
        assert page["paper"] == page["background"]
    assert not console
