"""The HTML report as a text: whole, the same bytes each time, and text in it is never markup; and
in a real browser."""

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.needs import PATIENCE_S, missing
from traces.cli import main
from traces.html import Report, render
from traces.results.record import Goodput, record_of
from traces.results.record import document as as_document

from .rig import Capsys, document, fails, random_tree

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e<!--"


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and the headings in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.result_of: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.result_of.append((tag, dict(attrs)))

    def of(self, *names: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.result_of if name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    random_tree(path / "tree.jsonl", 80)
    small = ["replay", str(path / "tree.jsonl"), "--device-pages", "60", "--check", "off"]
    stored = ["--storage", "sim:", "--prefetch", "wait_complete:0"]
    for name, options in (
        ("one", ["--host-pages", "70"]),
        ("two", ["--host-pages", "40", *stored]),
    ):
        assert main([*small, *options, "--html", str(path / f"{name}.html")]) == 0
    return path


@pytest.fixture(scope="module")
def full(folder: Path) -> dict[str, Any]:
    """A document with everything that a report can have."""
    files = [str(folder / f"{name}.html") for name in ("one", "two")]
    report = document(folder, "report", *files, "--title", "Everything")
    curve = ["curve", str(folder / "tree.jsonl"), "--policies", "all", "--model", "tiny"]
    report["curve"] = document(folder, *curve)
    for variant in report["variants"]:
        variant["slo"] = as_document(
            Goodput(0.02, None, None, None, 60, 0.75, None, 3.5, 99.0, {"ttft": 20})
        )
    report["verdict"] = {
        "sentences": ["Host memory of 1 GB is enough.", "What binds: More hits more."],
        "best": report["variants"][1]["label"],
    }
    report["warnings"], report["estimates"] = ["The clock is coarse."], ["A tenth was sampled."]
    record_of(Report, report)
    return report


def test_a_report_is_rendered_again_to_the_same_bytes(folder: Path) -> None:
    first = (folder / "one.html").read_bytes()
    assert main(["report", str(folder / "one.html"), "-o", str(folder / "again.html")]) == 0
    assert 400_000 < len(first) < 2_000_000  # most of it is the library that draws
    assert (folder / "again.html").read_bytes() == first
    assert main(["report", str(folder / "one.html"), "--json", str(folder / "one.json")]) == 0
    text = (folder / "one.json").read_text()
    older = text.replace('"total":', '"whole":').replace('"schema": 2', '"schema": 1')
    assert older.count('"whole":') > 0 < older.count('"schema": 1')
    for name, written in (("one", text), ("schema1", older)):
        (folder / f"{name}.json").write_text(written)
        assert main(["report", str(folder / f"{name}.json"), "-o", str(folder / "again.html")]) == 0
        assert (folder / "again.html").read_bytes() == first


def test_the_page_loads_nothing_and_runs_only_its_own_scripts(full: dict[str, Any]) -> None:
    text = render(full)
    page = Elements(text)
    assert not [
        item for _, item in page.result_of if item.keys() & {"src", "srcset", "data", "onerror"}
    ]
    assert not page.of("link", "iframe", "object", "embed", "base", "form", "img")
    assert all((item["href"] or "").startswith("#") for item in page.of("a"))
    policy = next(item["content"] for item in page.of("meta") if "http-equiv" in item) or ""
    assert "default-src 'none'" in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    [packed] = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', text)
    scripts.insert(0, gzip.decompress(base64.b64decode(packed)).decode())
    hashes = [
        "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"
        for script in scripts
    ]
    assert re.search(r"script-src ([^;]*);", policy)[1].split() == hashes  # type: ignore[index]
    assert len(scripts) == 2
    assert "@import" not in text[: text.index("</style>")]
    # and it says all without charts
    message = [*full["verdict"]["sentences"], *full["warnings"], *full["estimates"]]
    assert all(output in text for output in [*message, full["variants"][0]["digest"]])
    ids = [item["id"] for _, item in page.result_of if "id" in item]
    charts = [item for item in page.of("div") if item.get("class") == "chart"]
    assert [chart["id"] for chart in charts] == ["curve", "cdf"]
    for value in charts:
        assert value["role"] == "img"
        assert value["aria-label"]
        assert value["aria-describedby"] in ids


def hostile(value: Any) -> Any:
    """The document with every text replaced by a hostile one, but for what means something."""
    if isinstance(value, dict):
        kept = {"kind", "axis", "schema"}
        return {name: item if name in kept else hostile(item) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


def test_text_of_a_document_is_never_markup(full: dict[str, Any]) -> None:
    spoiled = hostile(full)
    spoiled["curve"]["policies"][HOSTILE] = spoiled["curve"]["policies"]["lru"]
    for variant in spoiled["variants"]:
        variant["lost_by_reason"] = {HOSTILE: 5}
        variant["config"][HOSTILE] = HOSTILE
    text = render(spoiled)
    page, plain = Elements(text), Elements(render(full))
    assert not page.of("img")
    assert len(page.of("script")) == len(plain.of("script")) == 4
    assert "\u202e" not in text
    assert not [item for _, item in page.result_of if any(key.startswith("on") for key in item)]
    charts = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)
    assert charts is not None
    assert "<" not in charts[1]
    assert "<img" not in json.dumps(json.loads(charts[1]))  # plotly reads tags in labels


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(kind="twin"), 'found a document of kind "twin"'),
        (lambda d: d.pop("variants"), "object missing required field `variants`"),
        (
            lambda d: d["curve"]["policies"]["lru"]["hit_rates"].__setitem__(0, -1e17),
            "hit_rates[0]: expected `float` >= 0.0",
        ),
    ],
)
def test_a_document_that_is_wrong_is_one_line(
    full: dict[str, Any], tmp_path: Path, capsys: Capsys, change: Any, text: str
) -> None:
    wrong = json.loads(json.dumps(full))
    change(wrong)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(wrong))
    assert text in fails(capsys, "report", str(path), "-o", str(tmp_path / "out.html"))
    assert not (tmp_path / "out.html").exists()


FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--enable-logging=stderr", "--virtual-time-budget=9000"),
)


def browser() -> str:
    """Chromium's path; without one the test is left out, and fails where CI is true."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    return path or missing("no chromium on PATH: apt-get install chromium")


def looked_at(folder: Path, text: str, *flags: str) -> tuple[str, str]:
    """The elements of the page when all is drawn, and the lines of the console."""
    (folder / "report.html").write_text(text)
    for attempt in range(3):  # a browser that dies of a signal is begun again
        own = f"--user-data-dir={folder / f'profile-{attempt}'}"
        page = (folder / "report.html").as_uri()
        done = subprocess.run(
            [browser(), *FLAGS, *flags, own, "--dump-dom", page],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode >= 0:
            break
    console = "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)
    return done.stdout, console


@pytest.mark.parametrize(
    ("theme", "flags"),
    [
        ("light", ("--window-size=1280,900",)),
        ("dark", ("--window-size=390,900", "--blink-settings=preferredColorScheme=0")),
    ],
)
def test_the_report_is_drawn_in_a_browser(
    theme: str, flags: tuple[str, ...], full: dict[str, Any], tmp_path: Path
) -> None:
    text = render(full if theme == "light" else hostile(full))
    page, console = looked_at(tmp_path, text, *flags)
    assert 'data-drawn="all"' in page
    assert len(re.findall(r'<g class="trace scatter', page)) == 6 + 3  # policies, and quantiles
    assert page.count("<img") == text.count("<img") == 0
    papers = re.findall(r'class="main-svg"[^>]* style="background: rgba?\(([\d, ]+)', page)
    assert papers
    for paper in papers[::2]:
        lightness = sum(map(int, paper.split(",")[:3])) / 765
        assert (lightness < 0.2) == (theme == "dark")
    assert not console
