"""Fail unless the reference explains every public function and class, and nothing else.

python scripts/check_site.py SITE        (what `mkdocs build --site-dir SITE` made)
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import nbtc

MODULES = (
    "dpx", "errors", "intrinsics", "mx", "ptx", "sparse", "tcgen05", "testing", "testing.strategies", "warp", "wgmma",
    "wmma",
)  # fmt: skip
EXTRAS = ("cuda", "cute", "dask", "torch", "triton")  # whose packages may be missing here
HEADING = re.compile(r'<h\d id="(nbtc[\w.]*)" class="doc doc-heading">')
TYPES = {  # what calls return, which has no public name but members that users read
    "nbtc.executor.profile.result.Counts",
    "nbtc.executor.profile.result.Place",
    "nbtc.gemm.cublas.orders.Library",
    "nbtc.gemm.orders.Order",
    "nbtc.isa.spec.Operand",
    "nbtc.testing.strategies",
}
MESSAGES = ("did_you_mean", "shown", "warn", "whole_number")  # what nbtc makes its own messages with
HELPERS = {f"nbtc.errors.{name}" for name in MESSAGES}


def explained(site: Path) -> set[str]:
    """Names that have a heading, and those of nbtc that a heading stands for."""
    found = set()
    for page in sorted((site / "reference").glob("*.html")):
        found |= set(HEADING.findall(page.read_text(encoding="utf-8")))
    return found


def public() -> Iterator[tuple[str, str]]:
    """Functions and classes of `nbtc` and of each of its public modules: their public name, and where they are made."""
    for name in nbtc.__all__:
        found = getattr(nbtc, name)
        yield from _entry(f"nbtc.{name}", getattr(found, name, found))  # `nbtc.gemm` is also the package it is in
    for room in MODULES:
        module = import_module(f"nbtc.{room}")
        own = [n for n, x in vars(module).items() if n[0] != "_" and getattr(x, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", own):
            yield from _entry(f"nbtc.{room}.{name}", getattr(module, name))


def _entry(name: str, x: object) -> Iterator[tuple[str, str]]:
    if (inspect.isfunction(x) or inspect.isclass(x)) and name not in HELPERS and not getattr(x, "_is_protocol", False):
        yield name, f"{x.__module__}.{x.__qualname__}"


def main() -> None:
    have = explained(Path(sys.argv[1]))
    names = dict(public())
    known = {*names, *names.values(), *TYPES}
    if missing := sorted(name for name, made in names.items() if not {name, made} & have):
        sys.exit(f"the reference lacks {', '.join(missing)}")
    extras = tuple(f"nbtc.{name}." for name in EXTRAS)
    if stray := sorted(n for n in have if not ({n, n.rpartition(".")[0]} & known or n.startswith(extras))):
        sys.exit(f"the reference has internals: {', '.join(stray)}")
    print(f"{len(names)} public functions and classes are in the reference, and nothing else")


if __name__ == "__main__":
    main()
