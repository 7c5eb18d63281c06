"""How large the project may be: lines of Python of each package, files, words of the pages. The
numbers get smaller; lines rose once, when a cache that serves came to be checked (`production`)."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ("hicache", "sim", "invariants", "traces")
MOST = {
    "lines of hicache": 21_979,
    "lines of sim": 8_693,
    "lines of invariants": 18_380,
    "lines of traces": 15_958,
    "lines of tests": 28_768,
    "files of source": 298,
    "files of tests": 194,
    "words of pages": 37_963,
}


def test_the_project_is_no_larger_than_allowed() -> None:
    files = {name: sorted((ROOT / name).rglob("*.py")) for name in (*SOURCE, "tests")}
    result = {
        f"lines of {name}": sum(path.read_bytes().count(b"\n") for path in paths)
        for name, paths in files.items()
    }
    result["files of source"] = sum(len(files[name]) for name in SOURCE)
    result["files of tests"] = len(files["tests"])
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")]
    result["words of pages"] = sum(len(page.read_text().split()) for page in pages)
    over = [
        f"{key}: {result[key]:,}, at most {most:,}"
        for key, most in MOST.items()
        if result[key] > most
    ]
    assert not over, "; ".join(over)
    assert result.keys() == MOST.keys()
