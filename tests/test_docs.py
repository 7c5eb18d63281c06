"""Pages that list what the code has: the list is the code's. Every link leads
somewhere, the figures of the README are true.

Commands are run by test_commands. What the first one of the README printed, in minutes, is kept by
`python -m tests.bench.headline` in docs/measured: here the page is compared with it, and the first
requests are replayed again on the machine of the answer. A change that moves its digest or figures
needs the command again.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from hicache.core.ledger import Pool
from invariants.base import check_names, load_check
from sim import hardware as profile
from tests.bench import headline
from traces.cli import main

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def test_docs_list_every_check_with_its_sentence() -> None:
    page = (DOCS / "invariants.md").read_text().split("## The checks\n")[1]
    table = [line for line in page.splitlines() if line.startswith("|")][2:]
    result = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table]
    checks = map(load_check, check_names())
    assert result == [(check.name, check.sentence, str(check.kind)) for check in checks]


def test_docs_of_bugs_name_existing_tests_and_checks() -> None:
    page = (DOCS / "bugs.md").read_text().split("## Found in other engines")[0]
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = {name.replace("-", "_") for name in check_names()}
    for name in re.findall(r"`(\w+)`", page):
        known = name in files or f"def {name}(" in sources
        assert known or name in {"too_large", "write_back", "CoreBug"}, name
    for path in re.findall(r"`((?:tests|sim|invariants)/[\w/.]+)`", page):
        assert (ROOT / path).exists(), path


def test_the_architecture_names_modules_that_exist() -> None:
    def is_there(path: str, *folders: str) -> bool:
        places = [ROOT / folder / path for folder in folders]
        return any(place.exists() or place.with_suffix(".py").exists() for place in places)

    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = re.findall(r"(?<![/\w])(?:hicache|sim|invariants|traces)(?:\.[a-z_]+)+", text)
    paths = re.findall(r"`([a-z_]+/[\w./]+)`", text) + [name.replace(".", "/") for name in modules]
    missing = [path for path in paths if not is_there(path, ".", "hicache")]
    for names in re.findall(r"^- ((?:`\w+` ?)+):", text, re.MULTILINE):
        missing += [n for n in re.findall(r"\w+", names) if not is_there(n, "hicache/core")]
    for names, what in re.findall(r"^\| (`[^|]+/[^|]*|`\w+`) \| (.*) \|$", text, re.MULTILINE):
        folders = [*re.findall(r"`(.+?)`", names), "traces/commands"]
        missing += [n for n in re.findall(r"`([a-z_]+)`", what) if not is_there(n, *folders)]
    assert not missing


def masked(line: str) -> str:
    """Numbers move with the code and its draws, the words do not."""
    return " ".join(re.sub(r"\b[0-9a-f]*\d[0-9a-f]*\b", "#", line).split())


def test_the_documented_debugging_session_matches_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    give_back = Pool.give_back
    monkeypatch.setattr(Pool, "give_back", lambda pool, pages: give_back(pool, pages[:-1]))
    page = (DOCS / "fuzzing.md").read_text()
    command, *shown = re.findall(r"```console\n\$ (.*?)```", page, re.DOTALL)[0].splitlines()
    code = main(shlex.split(command)[1:])
    message = set(map(masked, capsys.readouterr().out.splitlines()))
    assert shown.pop() == f"[exit code {code}]", command
    missing = [line for line in shown if line != "..." and masked(line) not in message]
    assert not missing, f"docs/fuzzing.md: {command} does not print {missing}"


def test_docs_of_times_list_the_hardware_of_the_profiles() -> None:
    lines = (DOCS / "times.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = {row[0]: row[1:] for row in cells if len(row) == 9 and row[0] in profile.names()}
    assert list(rows) == profile.names()
    for name, row in rows.items():
        item = profile.get(name)
        rates = (item.flops_per_s, item.fp8_flops_per_s, item.fp4_flops_per_s)
        assert row == [
            *(f"{rate / 1e12:,.0f}" if rate else "-" for rate in rates),
            f"{item.hbm_bytes_per_s / 1e9:,.0f}",
            f"{item.hbm_bytes / 1e9:,.0f}",
            f"{item.link_bytes_per_s / 1e9:,.1f}",
            f"{item.link_permille / 10:.1f} %",
            f"{item.ranks_link} {item.ranks_link_bytes_per_s / 1e9:,.1f}",
        ]
        # the text under the table says these for all
        assert (item.compute_permille, item.hbm_permille) == (600, 800)
        assert (item.copy_latency_ns, item.step_overhead_ns) == (6_000, 500_000)


README = (ROOT / "README.md").read_text()


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_begins_with_a_command_and_its_links_lead_to_headings() -> None:
    for page in (*ROOT.glob("*.md"), *DOCS.glob("*.md")):
        for path, anchor in re.findall(r"\]\(([^)#:]*)#?([^)#:]*)\)", page.read_text()):
            target = (page.parent / path) if path else page
            assert target.exists(), (page.name, path)
            assert not anchor or anchor in anchors(target), (page.name, path, anchor)
        assert page.parent == ROOT or re.match(r"# .*\n\n(```|    )", page.read_text()), page.name


def test_the_model_of_the_readme_skips_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for shown, small in (("=256", "=32"), ("=512", "=32"), ("=4,", "=1,"), ("=16)", "=2)")):
        assert shown in example
        example = example.replace(shown, small)  # a model that takes less time
    for hits in ({"device": 992, "disk": 0}, {"device": 992, "disk": 992}):
        names: dict[str, Any] = {}
        exec(compile(example, "README.md", "exec"), names)
        with names["cache"] as cache:
            assert cache.stats.hits == {"host": 0} | hits


BOUGHT: dict[str, Any] = json.loads(headline.BOUGHT.read_text())


def test_the_page_says_what_the_command_of_the_readme_measured() -> None:
    assert headline.between(headline.PAGE.read_text()) == headline.line_of(BOUGHT)
    assert BOUGHT["command"].split()[1:] == headline.command()


def test_a_replay_on_the_machine_of_the_answer_gives_its_figures_again(tmp_path: Path) -> None:
    if not headline.TRACE.exists():
        pytest.skip(f"needs the conversation trace at ../shared/traces/{headline.TRACE.name}")
    assert headline.first_thousand(BOUGHT["answer"], tmp_path) == BOUGHT["first_1000"]
