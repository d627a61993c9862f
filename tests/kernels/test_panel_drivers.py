"""Compiled drivers of large products: one for all forms, which differ in emitted code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbtc.compiler.cpu.processors import host_processor
from tests.processes import forked, output

PRODUCTS = """
import numpy as np, nbtc
from nbtc.kernels.panels.panel_drivers import drivers
from nbtc.testing.cases import large_engines
a, b = np.arange(24, dtype=np.float16).reshape(4, 6), np.ones((6, 5), np.float16)
with large_engines():
    for arch in ("sm_90", "sm_80"):
        assert (nbtc.matmul(a, b, arch=arch) == a @ b).all()
    assert (nbtc.matmul(a.repeat(20, 0), b.repeat(220, 1), threads=2) == (a @ b).repeat(20, 0).repeat(220, 1)).all()
print(len(set(drivers())), drivers.cache_info().misses)
"""


@pytest.mark.skipif(host_processor() is None, reason="no vector code for this processor")
def test_products_share_their_driver(tmp_path: Path) -> None:
    """The next process finds it, and what was emitted, on disk: addresses are of neither."""
    kept = []
    for _ in range(2):
        run = forked(PRODUCTS, NUMBA_CACHE_DIR=str(tmp_path / "numba"), NBTC_CACHE_DIR=str(tmp_path / "nbtc"))
        assert output(run) == "3 1"  # of columns, of rows, of products in one piece
        kept.append({path: path.stat().st_mtime_ns for path in (tmp_path / "nbtc").rglob("*.o")})
    # what Python calls them by; the drivers; for blocks of 16 and of 8 products sums, a packer of rows, one of columns
    assert len(kept[0]) == 8
    assert kept[0] == kept[1]
