"""Products whose rows are not multiples of 16 bytes against cuBLAS' on an H200: orders of the table and their bits."""

import hashlib
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import nbtc
from nbtc.errors import GuessedOrderWarning
from nbtc.gemm.cublas.shapes import find
from nbtc.torch import emulated
from tests.gemm.test_orders import CUBLAS, cancelling

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


def test_padded_lines_take_the_kernel_of_aligned_ones():
    """A gradient of 3,141 words whose lines are 3,144 apart, as TorchInductor pads them, recorded on an H100."""
    left, right = (x.astype(ml_dtypes.bfloat16) for x in cancelling(np.arange(3141), np.arange(96), 96, 96))
    stored = torch.zeros(96, 3144, dtype=torch.bfloat16)
    stored[:, :3141] = torch.from_numpy(left.T.copy().view(np.int16)).view(torch.bfloat16)
    b = torch.from_numpy(right.view(np.int16)).view(torch.bfloat16)
    with emulated("H200", order=nbtc.library(**CUBLAS)) as mode, pytest.warns(GuessedOrderWarning, match="padded"):
        d = stored[:, :3141].t() @ b
    assert mode.report().products[0].order == "seq"
    columns = [0, 13, 18, 31, 36, 41, 54, 59, 64, 77, 82, 95]
    recorded = [13056, -19840, 13488, 0, -19456, -19328, 13344, 13488, 13504, -19840, 13536, -19280]
    assert d[0, columns].view(torch.int16).tolist() == recorded


def test_one_row_of_float32_is_not_rounded_to_tf32():
    a, b = torch.randn(1, 768), torch.randn(768, 768)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with emulated("H200", order=nbtc.library(**CUBLAS)) as mode:
            d = a @ b.t()
    finally:
        torch.set_float32_matmul_precision(before)
    assert mode.report().products[0].order == "fma:lanes32"
    assert torch.equal(d, torch.from_numpy(nbtc.matmul(a.numpy(), b.t().numpy(), order="fma:lanes32")))
