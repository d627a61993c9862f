"""Tests with other tools run where the tool is installed; elsewhere each file is skipped by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import pytest

# Which package the files of a folder, or those with names that begin so, need.
FOLDERS = {"numba_cuda": "numba_cuda", "cute": "cutlass", "triton": "triton", "torch_cuda": "torch"}
NAMES = {"test_torch": "torch", "test_dask": "dask"}


class Missing(pytest.Module):
    """A file that is not imported, since it would fail."""

    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip(f"{needed(self.path)} is not installed", allow_module_level=True)


def needed(file: Path) -> str | None:
    """The package that a file of tests needs."""
    by_name = (package for start, package in NAMES.items() if file.name.startswith(start))
    return FOLDERS.get(file.parent.name) or next(by_name, None)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    package = needed(module_path)
    if package is None or importlib.util.find_spec(package) is not None:
        return None
    return Missing.from_parent(parent, path=module_path)
