"""docs/messages.md has every error, with its built-in class, and messages that nbtc raises."""

import builtins
import re
from pathlib import Path

import nbtc
from nbtc import errors

TREE = Path(__file__).resolve().parents[1]
PAGE = (TREE / "docs" / "messages.md").read_text(encoding="utf-8")
CLASSES = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception | Warning)}


def test_every_error_is_in_the_index():
    named = set(re.findall(r"`(\w+(?:Error|Warning|Mismatch))`", PAGE))
    assert set(CLASSES) - {"NbtcError", "NbtcWarning"} <= named


def test_the_built_in_classes_are_right():
    for name, builtin in re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE):
        assert issubclass(CLASSES[name], getattr(builtins, builtin)), name


def test_the_messages_are_nbtcs():
    """A beginning in the index stands in some file, in the words around what a message fills in."""
    source = re.sub(
        r'"\s*\n\s*f?"', "", "\n".join(p.read_text(encoding="utf-8") for p in Path(nbtc.__file__).parent.rglob("*.py"))
    )
    rows = re.findall(r"^\| (?!`|class|message|---)([^|]+) \|", PAGE, re.MULTILINE)
    assert len(rows) > 15
    missing = [m for m in rows if not all(part in source for part in re.split(r"\(\?\)|`try`", m) if part)]
    assert not missing
