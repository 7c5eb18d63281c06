"""The cache and the adapter of docs/fuzz_your_cache.md, for tests."""

import re
import sys
from pathlib import Path

from invariants.fuzz.child import loaded
from invariants.fuzz.target import Target

PAGE = Path(__file__).parents[1] / "docs/fuzz_your_cache.md"
FILES = re.compile(r"`(\w+\.py)`[^\n]*:\n\n```python\n(.*?)```", re.DOTALL)


def files(text: str = "") -> dict[str, str]:
    """The files that a page shows, by name."""
    return dict(FILES.findall(text or PAGE.read_text()))


def write(folder: Path, right: str = "", wrong: str = "") -> str:
    """Writes both files, with a bug in place of what is right. Returns the target's name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, code in files().items():
        assert name != "radix.py" or not right or code.count(right) == 1, right
        (folder / name).write_text(code.replace(right, wrong) if right else code)
    return f"{folder}/adapter.py:Radix"


def kind(folder: Path, right: str = "", wrong: str = "") -> type[Target]:
    """The class itself, for tests that play it in their own process."""
    write(folder, right, wrong)
    sys.modules.pop("radix", None)
    sys.path.insert(0, str(folder))
    try:
        return loaded(f"{folder}/adapter.py", "Radix")[1]
    finally:
        sys.path.remove(str(folder))
