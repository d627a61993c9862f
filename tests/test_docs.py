"""Every example in a docstring or in the README runs and prints what it says."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import nbtc

MODULES = [
    "nbtc",
    *sorted(m.name for m in pkgutil.walk_packages(nbtc.__path__, "nbtc.") if not m.name.endswith("__main__")),
]
EXTRAS = ("torch", "dask")  # packages that optional parts of nbtc need
TREE = Path(__file__).resolve().parents[1]
PAGES = sorted(p for p in (TREE / "README.md", *(TREE / "docs").glob("*.md")) if p.is_file())


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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages(page):
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
