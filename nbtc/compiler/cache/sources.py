"""Digests over nbtc's sources: of a file and all that it imports.

A digest is made when code is first wanted, which may be hours after the modules were imported: what is read then has
to be what runs.  Where a file has changed since nbtc was imported, by an upgrade beside a notebook, the digest is this
process's own, and what it compiles is not kept (`unchanged`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from functools import cache
from os import PathLike

import nbtc

ROOT = os.path.normpath(os.path.join(os.path.realpath(__file__), "..", "..", ".."))

# Import statements at the start of a line, as ruff lays them out; text that only looks like one adds a file too many.
# Looked for by their first words: with the start of a line in the patterns `re` tries each line, for twice the time.
_FROM = re.compile(r"from (nbtc[.\w]*) import (\([^)]*\)|[^\n]*)")
_IMPORT = re.compile(r"import (nbtc[.\w]+)")
_WORD = re.compile(r"(?:^|[(,])\s*(\w+)")
_COMMENT = re.compile(r"#[^\n]*")
FRONT = "__init__.py"
STARTED: float = nbtc._STARTED
_CHANGED: list[str] = []  # files that have since


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
    """A file's text; where it may not be what was imported, with what no other process has."""
    with open(os.path.join(ROOT, file), "rb") as opened:
        found = os.fstat(opened.fileno())
        # of installed files the time of the text may be any; Windows has no time of the file's last change
        changed = found.st_mtime if os.name == "nt" else found.st_ctime
        if changed <= STARTED:
            return opened.read()
        _CHANGED.append(file)
        return opened.read() + b"\n# " + os.urandom(32).hex().encode()


def unchanged() -> bool:
    """Whether all files that were read are as they were imported, so that other processes have the same digests."""
    return not _CHANGED


@cache
def _places() -> dict[str, str]:
    """Files by the names of their modules."""
    names = ((file.removesuffix(".py").replace("/", "."), file) for file in _files() if file != FRONT)
    return {f"nbtc.{name}".removesuffix(".__init__"): file for name, file in names}


def _statements(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Matches that only spaces stand before in their line."""
    for found in pattern.finditer(text):
        at = found.start()
        if not text[text.rfind("\n", 0, at) + 1 : at].strip(" \t"):
            yield found


@cache
def _imports(file: str) -> frozenset[str]:
    """Files of nbtc that a file of nbtc names in its import statements, those inside of functions too.

    By the statements' text: parsing every file would take the first product of a process a second.
    """
    text, places = _read(file).decode(), _places()
    modules = {found[1] for found in _statements(_IMPORT, text)}
    for found in _statements(_FROM, text):
        module, names = found.groups()
        names = _COMMENT.sub("", names) if "#" in names else names
        modules |= {module, *(f"{module}.{name}" for name in _WORD.findall(names))}
    return frozenset(places[module] for module in modules if module in places)


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
