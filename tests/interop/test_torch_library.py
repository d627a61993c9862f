"""Products whose rows are not multiples of 16 bytes against cuBLAS' on an H200: orders of the table and their bits."""

import hashlib
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import nbtc
from nbtc.gemm.cublas.shapes import find

DTYPES = {"f16": (torch.float16, np.float16), "bf16": (torch.bfloat16, ml_dtypes.bfloat16)}
# Seed; operation, layout, batch, M, N, K; format; order; SHA-256 of the result's bits, by torch.mm, bmm and addmm of
# PyTorch 2.11 without reduced-precision reductions.  The order's residue is the tile of K in the kernel's name, as the
# profiler gave it (cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1_nt_align2: 64).
RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "libraries" / "odd_products.json").read_text())


@pytest.mark.parametrize(("seed", "product", "name", "order", "digest"), RECORDED, ids=lambda x: None)
def test_recorded_products(seed, product, name, order, digest):
    op, layout, batch, m, n, k = product
    found = find(op, name, layout, (batch, m, n, k))
    assert found is not None and (found.order, found.kind) == (order, "recorded")
    g, (wanted, dtype) = torch.Generator().manual_seed(5000 + seed), DTYPES[name]
    lead = (batch,) if batch else ()
    shapes = (k, m) if layout[0] == "t" else (m, k), (n, k) if layout[1] == "t" else (k, n)
    stored = [torch.randn(*lead, *shape, generator=g).to(wanted) for shape in shapes]
    a, b = (x.mT if turned == "t" else x for x, turned in zip(stored, layout, strict=True))
    c = torch.randn(n, generator=g).to(wanted)
    operands = (x.contiguous().view(torch.uint16).numpy().view(dtype) for x in (a, b))
    d = torch.from_numpy(np.ascontiguousarray(nbtc.matmul(*operands, arch="sm_90", order=order)))
    d = (d + c.float() if op == "addmm" else d).to(wanted)
    assert hashlib.sha256(d.view(torch.int16).numpy().tobytes()).hexdigest()[:16] == digest
