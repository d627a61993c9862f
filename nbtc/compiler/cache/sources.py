"""Digests over nbtc's sources: of a file and all that it imports.

Every kernel asks when it is defined, so paths are text here: with pathlib it took a third of the time to import nbtc.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from os import PathLike

ROOT = os.path.normpath(os.path.join(os.path.realpath(__file__), "..", "..", ".."))

# Import statements at the start of a line, as ruff lays them out; text that only looks like one adds a file too many.
_FROM = re.compile(r"^[ \t]*from (nbtc[.\w]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import (nbtc[.\w]+)", re.MULTILINE)
_WORD = re.compile(r"(?:^|[(,])\s*(\w+)")
_COMMENT = re.compile(r"#[^\n]*")
FRONT = "__init__.py"


@cache
def _files() -> frozenset[str]:
    """nbtc's files of Python, below ROOT."""
    found = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name != "__pycache__"]
        below = os.path.relpath(folder, ROOT)
        start = "" if below == os.curdir else below.replace(os.sep, "/") + "/"
        found += [start + name for name in names if name.endswith(".py")]
    return frozenset(found)


@cache
def _read(file: str) -> bytes:
    with open(os.path.join(ROOT, file), "rb") as opened:
        return opened.read()


@cache
def _imports(file: str) -> frozenset[str]:
    """Files of nbtc that a file of nbtc names in its import statements, those inside of functions too.

    By the statements' text: parsing every file would take the first product of a process a second.
    """
    text = _read(file).decode()
    modules = set(_IMPORT.findall(text))
    for module, names in _FROM.findall(text):
        modules |= {module, *(f"{module}.{name}" for name in _WORD.findall(_COMMENT.sub("", names)))}
    places = [module.replace(".", "/").removeprefix("nbtc").removeprefix("/") for module in modules]
    files = {found for p in places for found in (f"{p}.py", f"{p}/{FRONT}") if found in _files()}
    return frozenset(files)


@cache
def _below(file: str) -> str:
    """A path as it is kept here."""
    return os.path.relpath(os.path.realpath(file), ROOT).replace(os.sep, "/")


@cache
def _digest(files: tuple[str, ...]) -> str:
    seen: set[str] = set()
    todo = set(files)
    while todo:
        seen |= todo
        todo = set().union(*(_imports(file) for file in todo)) - seen - {FRONT}
    digest = hashlib.sha256()
    for file in sorted(seen):
        digest.update(file.encode())
        digest.update(_read(file))
    return digest.hexdigest()


def source_digest(*paths: str | PathLike[str]) -> str:
    """Digest over the text of files of nbtc and of all that they import, directly or not.

    The front door, `nbtc/__init__.py`, holds no compiled code and names every module: it is left out.
    """
    return _digest(tuple(_below(os.fspath(path)) for path in paths))
