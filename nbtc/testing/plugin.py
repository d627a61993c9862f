"""A pytest plugin, found by pytest when nbtc is installed: the fixture `assert_bits_equal`; failures end at the line of
the test that called nbtc.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import nbtc.testing
from nbtc.errors import NbtcError

STANDARD = Path(sysconfig.get_path("stdlib")).resolve()
PACKAGE = Path(nbtc.__file__).resolve().parent


def pytest_configure(config: pytest.Config) -> None:
    """Modules of nbtc are imported as they are.

    pytest rewrites the assertions of each module of a package that has a plugin; nbtc has none, and to look for them
    takes longer than all else that an import does.  pytest has no public way to say so: the name is private (pytest 9.2
    has it), and where it isn't there they are rewritten.
    """
    hook: Any = config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("nbtc")


@pytest.fixture(name="assert_bits_equal")
def bits_fixture() -> Callable[..., None]:
    """`nbtc.testing.assert_bits_equal`: arrays or tensors of one shape and dtype must have the same bits."""
    return nbtc.testing.assert_bits_equal


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """An error that nbtc raises on purpose speaks of the caller's line: frames below it are cut off its traceback.

    With `--full-trace` and `--pdb` they stay.
    """
    found = call.excinfo
    kept = item.config.getoption("fulltrace", False) or item.config.getoption("usepdb", False)
    if found is not None and isinstance(found.value, NbtcError) and not kept:
        last: TracebackType | None = None
        entry: TracebackType | None = found.tb
        while entry is not None:
            last, entry = entry if _is_users(entry.tb_frame.f_code.co_filename) else last, entry.tb_next
        if last is not None:
            last.tb_next = None
            found.value.__cause__, found.value.__suppress_context__ = None, True
    return (yield)


def _is_users(file: str) -> bool:
    """Whether a file is neither nbtc's, nor an installed package's, nor Python's."""
    path = Path(file)
    installed = {"site-packages", "dist-packages"} & {*path.parts} or STANDARD in path.parents
    return path.is_absolute() and PACKAGE not in path.parents and not installed
