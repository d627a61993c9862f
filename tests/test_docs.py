"""Every example in a docstring or in the README runs and prints what it says."""

import doctest
import importlib
import linecache
import pkgutil
import re
from pathlib import Path

import pytest

import nbtc

MODULES = [
    "nbtc",
    *sorted(m.name for m in pkgutil.walk_packages(nbtc.__path__, "nbtc.") if not m.name.endswith("__main__")),
]
EXTRAS = ("torch", "dask", "triton", "numba_cuda", "cutlass")  # packages that optional parts of nbtc need
TREE = Path(__file__).resolve().parents[1]
PAGES = sorted(p for p in (TREE / "README.md", *(TREE / "docs").glob("*.md")) if p.is_file())


@pytest.fixture(autouse=True)
def no_lines_of_other_files():
    """For each docstring doctest looks whether any file has changed that a traceback has quoted or a compiler read."""
    linecache.clearcache()


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    try:
        module = importlib.import_module(name)
    except ImportError as missing:
        if missing.name not in EXTRAS:
            raise
        pytest.skip(f"{name} needs {missing.name}")
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def sections(page):
    """The whole page, where its head says what it needs; or, where some parts need packages, its sections."""
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    whole = re.findall(r"<!-- needs (\w+) -->", parts[0])
    if whole or "<!-- needs " not in text:
        return [(page.name, text, whole)]
    return [(f"{page.name} {part.splitlines()[0]}", part, re.findall(r"<!-- needs (\w+) -->", part)) for part in parts]


SECTIONS = [section for page in PAGES for section in sections(page)]


@pytest.mark.parametrize(
    ("name", "text", "needs"), SECTIONS, ids=lambda x: x if isinstance(x, str) and len(x) < 60 else ""
)
def test_pages(name, text, needs):
    for package in needs:
        pytest.importorskip(package)
    examples = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples).failed == 0


def test_links_lead_somewhere():
    for page in (*PAGES, TREE / "CONTRIBUTING.md"):
        text = re.sub(r"`[^`]*`", "", page.read_text(encoding="utf-8"))  # code is no link
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_page_is_linked():
    linked = set(re.findall(r"\]\(docs/([^)#]+)", (TREE / "README.md").read_text(encoding="utf-8")))
    assert {p.name for p in (TREE / "docs").glob("*.md")} <= linked
