"""The words of the house: standard terms of the field, one word for one thing, none that only its authors know."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

import nbtc

PACKAGE = Path(nbtc.__file__).resolve().parent
DOCS = PACKAGE.parent / "docs"
# names that code had, and what they are called instead
NAMES = {
    "apart": "divergent",
    "behind": "after, next_block",
    "beside": "interleaved, side_by_side",
    "cell": "counter, axis",
    "cells": "elements, rows, services: those of shadow memory are in executor/watch",
    "far": "distance, too_large, beyond",
    "glance": "record_known",
    "glances": "known_accesses",
    "lasting": "what lasts: keeps_infinity",
    "lift": "scale_exponent, bias_difference",
    "lifts": "scale_exponents",
    "looks_on": "observes",
    "meets": "post_dominator",
    "pend": "defer",
    "restarted": "from_zero",
    "restless": "yielding",
    "room": "buffer; of bytes a size",
    "rooms": "buffers, modules",
    "settle": "record_access, admit",
    "settled": "harmless, strict",
    "taints": "definedness",
    "tame": "in_range",
}
ANY = re.compile(rf"\b({'|'.join(NAMES)})\b")
# Where they are private: elsewhere are distances, and cells of shadow memory, drawings, closures and recurrent nets.
_EXECUTOR = tuple(
    f"executor/{folder}/" for folder in ("code", "emit", "kernel", "matrix", "memory", "profile", "texture")
)
_CELLS = (*_EXECUTOR, "gemm/", "kernels/", "numerics/", "ops/")
INSIDE = {"apart": ("executor/kernel/", "executor/code/"), "cell": _CELLS, "cells": _CELLS}
# "behind" is a place of somebody who is late, or what is left there; in a row of things it is "after"
BEHIND = re.compile(r"\bbehind\b")
PRIVATE = re.compile(r"\b(restless|taint(s|ed)?|tamed?|lasting|2\*\*-?lift|looks? on)\b")
LATE = re.compile(r"\b(leav\w+|left|stay|step)\b[^.]*\bbehind\b")


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def names(path: Path) -> set[str]:
    """Private names in a file; a file without the words, comments included, is not taken to pieces: most are not."""
    text = path.read_text(encoding="utf-8")
    if not ANY.search(text):
        return set()
    return {t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.NAME}


def test_no_name_is_private_vocabulary() -> None:
    found = []
    for path in sources():
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith("testing/"):
            continue
        found += [
            f"{where}: {name}: say {NAMES[name]}"
            for name in sorted(names(path) & NAMES.keys())
            if where.startswith(INSIDE.get(name, ""))
        ]
    assert not found, "\n".join(found)


def test_what_follows_stands_after() -> None:
    found = []
    for path in [*sources(), *sorted(DOCS.glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if BEHIND.search(line) and not LATE.search(line):
                found.append(f"{path.name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_no_text_has_private_vocabulary() -> None:
    found = []
    for path in [*sources(), *sorted(DOCS.glob("*.md"))]:
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        found += [f"{path.name}:{number}: {line.strip()}" for number, line in lines if PRIVATE.search(line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "legal"),
    [("the bytes behind its end", False), ("leaves nothing behind", True), ("one step behind lane j - 1", True)],
)
def test_the_check_tells_them_apart(line: str, legal: bool) -> None:
    assert bool(BEHIND.search(line) and not LATE.search(line)) != legal


# Rooms below the doors: a door has the names of what it is a door to (Stream, Event, Module ...).
ROOMS = (
    "check", "compiler", "dialect", "executor", "formats", "fragments", "gemm", "isa", "kernels", "numba_door",
    "numerics", "ops", "show",
)  # fmt: skip
TWICE = {"Descriptor"}  # of wgmma and of tcgen05, which users name by their module


def test_a_class_has_a_name_of_its_own() -> None:
    found = defaultdict(list)
    for path in sources():
        where = path.relative_to(PACKAGE)
        if where.parts[0] in ROOMS and "class " in (text := path.read_text(encoding="utf-8")):
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(where.as_posix())
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert twice.keys() == TWICE, f"one name, one class: {twice}"
