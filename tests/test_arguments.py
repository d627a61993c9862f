"""Every argument of the public functions, given what it is not: the errors are nbtc's own, and short.

Numbers of thousands of digits, long texts, lists, objects, empty and ragged arrays: none may reach the arithmetic, and
none may raise what Python or NumPy happens to raise.  (None often means "not given", and may be taken.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc import ptx, sparse
from nbtc.errors import NbtcError
from nbtc.wgmma import Descriptor, Sequence, fence, smem_to_tile, tile_to_smem, wait_group

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.NbtcWarning")
H, S, D = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float32), np.zeros((128, 4), np.uint32)
MEMORY, SMEM, ROWS = np.zeros(1024, np.uint8), np.zeros(9000, np.uint8), 16 * np.arange(32)
i = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
ra, rb, rc = i.pack_a(H), i.pack_b(H[:, :8]), i.pack_c(S[:, :8])
SP = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WG = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
LOAD, STORE = "wmma.load.a.sync.aligned.row.m16n16k16.f16", "wmma.store.d.sync.aligned.row.m16n16k16.f16"
WRONG: list[Any] = [
    "z" * 100_000, 10**5000, -(10**5000), None, [], {}, object(), 1.5, float("nan"), b"x", np.array([None]),
    [[1], [1, 2]], -1, 10**20, True, np.zeros(0), (1,), np.array([1, 2]), np.ma.masked_array([1.0, 2.0], [True, False]),
]  # fmt: skip
PROGRAM = nbtc.load(""".version 8.0 .target sm_80 .address_size 64 .visible .entry none(.param .u64 x, .param .u32 n) {
  ret; }""")["none"]
X = np.zeros(4, np.float32)
A, B, C = (nbtc.wmma.fragment(use, 16, 16, 16, fmt, *layout) for use, fmt, *layout in (
    (nbtc.wmma.matrix_a, "f16", nbtc.wmma.row_major), (nbtc.wmma.matrix_b, "f16", nbtc.wmma.row_major),
    (nbtc.wmma.accumulator, "f32")))  # fmt: skip
E, SCALES = nbtc.mx.quantize(np.zeros((16, 32), np.float32), "mxfp8")
CALLS: dict[str, Callable[[Any], Any]] = {
    "matmul a": lambda x: nbtc.matmul(x, H),
    "matmul b": lambda x: nbtc.matmul(H, x),
    "matmul c": lambda x: nbtc.matmul(H, H, x),
    "arch": lambda x: nbtc.matmul(H, H, arch=x),
    "acc": lambda x: nbtc.matmul(H, H, acc=x),
    "instruction": lambda x: nbtc.matmul(H, H, instruction=x),
    "a_format": lambda x: nbtc.matmul(H, H, a_format=x),
    "op": lambda x: nbtc.matmul(H, H, op=x),
    "k_split": lambda x: nbtc.matmul(H, H, k_split=x),
    "out": lambda x: nbtc.matmul(H, H, out=x),
    "threads": lambda x: nbtc.matmul(H, H, threads=x),
    "pack": lambda x: nbtc.pack(x, "s4"),
    "packfmt": lambda x: nbtc.pack(np.zeros(8, np.int8), x),
    "packaxis": lambda x: nbtc.pack(np.zeros(8, np.int8), "s4", axis=x),
    "unpack": lambda x: nbtc.unpack(x, "s4"),
    "unpackcount": lambda x: nbtc.unpack(np.zeros(8, np.uint32), "s4", count=x),
    "convert": lambda x: nbtc.convert(x, "f16"),
    "convertfmt": lambda x: nbtc.convert(S, x),
    "convertr": lambda x: nbtc.convert(S, "f16", rounding=x),
    "converts": lambda x: nbtc.convert(S, "f16", saturate=x),
    "convertrelu": lambda x: nbtc.convert(S, "f16", relu=x),
    "instr": lambda x: nbtc.instruction(x),
    "instrs f": lambda x: nbtc.instructions(family=x),
    "instrs shape": lambda x: nbtc.instructions(shape=x),
    "instrs a": lambda x: nbtc.instructions(a=x),
    "i a": lambda x: i(x, rb, rc),
    "i b": lambda x: i(ra, x, rc),
    "i meta": lambda x: i(ra, rb, rc, x),
    "i sel": lambda x: i(ra, rb, rc, None, x),
    "i arch": lambda x: i(ra, rb, rc, arch=x),
    "pack_a": lambda x: i.pack_a(x),
    "pack arch": lambda x: i.pack_a(H, x),
    "unpack_d": lambda x: i.unpack_d(x),
    "cvt": lambda x: ptx.cvt(x, np.zeros(2, np.uint32)),
    "cvt w": lambda x: ptx.cvt("cvt.rn.f16.f32", x),
    "ldm": lambda x: ptx.ldmatrix(x, ROWS),
    "ldm addr": lambda x: ptx.ldmatrix(MEMORY, x),
    "ldm num": lambda x: ptx.ldmatrix(MEMORY, ROWS, x),
    "stm": lambda x: ptx.stmatrix(MEMORY, ROWS, x),
    "movm": lambda x: ptx.movmatrix(x),
    "wl": lambda x: ptx.wmma_load(x, MEMORY),
    "wl mem": lambda x: ptx.wmma_load(LOAD, x),
    "wl off": lambda x: ptx.wmma_load(LOAD, MEMORY, x),
    "wl arch": lambda x: ptx.wmma_load(LOAD, MEMORY, arch=x),
    "ws": lambda x: ptx.wmma_store(STORE, x, np.zeros((32, 4), np.uint32)),
    "ws r": lambda x: ptx.wmma_store(STORE, MEMORY, x),
    "wg d": lambda x: ptx.wgmma(WG, x, 0, 0, SMEM),
    "wg a": lambda x: ptx.wgmma(WG, D, x, 0, SMEM),
    "wg s": lambda x: ptx.wgmma(WG, D, 0, 0, x),
    "wg sd": lambda x: ptx.wgmma(WG, D, 0, 0, SMEM, scale_d=x),
    "wg sa": lambda x: ptx.wgmma(WG, D, 0, 0, SMEM, scale_a=x),
    "wg ta": lambda x: ptx.wgmma(WG, D, 0, 0, SMEM, trans_a=x),
    "wg meta": lambda x: ptx.wgmma("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", D, 0, 0, SMEM, meta=x),
    "desc": lambda x: Descriptor(x, 16, 16),
    "desc sw": lambda x: Descriptor(0, 16, 16, 0, x),
    "decode": lambda x: Descriptor.decode(x),
    "addr": lambda x: Descriptor(0, 16, 16).address(x, 0, "f16"),
    "addr f": lambda x: Descriptor(0, 16, 16).address(0, 0, x),
    "addr m": lambda x: Descriptor(0, 16, 16).address(0, 0, "f16", x),
    "explain": lambda x: Descriptor(0, 16, 128).explain(x, "f16"),
    "t2s": lambda x: tile_to_smem(x, "f16"),
    "s2t": lambda x: smem_to_tile(x, Descriptor(0, 16, 128), (8, 8), "f16"),
    "s2t d": lambda x: smem_to_tile(np.zeros(900, np.uint8), x, (8, 8), "f16"),
    "s2t sh": lambda x: smem_to_tile(np.zeros(900, np.uint8), Descriptor(0, 16, 128), x, "f16"),
    "wait": lambda x: wait_group(x),
    "wait seq": lambda x: wait_group(0, x),
    "fence seq": lambda x: fence(x),
    "Sequence": lambda x: Sequence(x),
    "Seq check": lambda x: Sequence(64, check=x),
    "seq reg": lambda x: Sequence(64).registers(x),
    "seq store": lambda x: Sequence(64).store(0, x),
    "seq store off": lambda x: Sequence(64).store(x, np.zeros(4, np.uint8)),
    "seq load": lambda x: Sequence(64).load(x, 4),
    "seq proxy": lambda x: Sequence(64).store(0, np.zeros(4, np.uint8), proxy=x),
    "seq wait": lambda x: Sequence(64).wait_group(x),
    "seq wg": lambda x: Sequence(9000).wgmma(WG, x, 0, 0),
    "compress": lambda x: sparse.compress(x, SP),
    "compress i": lambda x: sparse.compress(np.zeros((16, 32), np.float16), x),
    "compress s": lambda x: sparse.compress(np.zeros((16, 32), np.float16), SP, x),
    "expand": lambda x: sparse.expand(x, np.zeros(32, np.uint32), SP),
    "expand m": lambda x: sparse.expand(np.zeros((16, 16), np.float16), x, SP),
    "abe": lambda x: nbtc.testing.assert_bits_equal(x, np.zeros(3)),
    "ulp": lambda x: nbtc.testing.ulp_distance(x, np.zeros(3, np.float32)),
    "plan k": lambda x: nbtc.plan(H, H, saturate=x),
    "progress": lambda x: nbtc.matmul(H, H, progress=x),
    "gemm alpha": lambda x: nbtc.gemm(x, H, H, 1, None),
    "instrs sparse": lambda x: nbtc.instructions(sparse=x),
    "ldm trans": lambda x: ptx.ldmatrix(MEMORY, ROWS, trans=x),
    "addr k": lambda x: Descriptor(0, 16, 16).address(np.arange(3), x, "f16"),
    "sp strict": lambda x: ptx.mma_sp(
        SP, *(np.zeros((32, 4), np.uint32) for _ in "abc"), np.zeros(32, np.uint32), strict=x
    ),
    "wmma a": lambda x: nbtc.wmma.mma_sync(C, x, B, C),
    "wmma satf": lambda x: nbtc.wmma.mma_sync(C, A, B, C, x),
    "wmma store": lambda x: nbtc.wmma.store_matrix_sync(x, C, 16, nbtc.wmma.mem_row_major),
    "to tf32": lambda x: nbtc.wmma.float_to_tf32(x),
    "quantize": lambda x: nbtc.mx.quantize(x, "mxfp8"),
    "quantize to": lambda x: nbtc.mx.quantize(S, x),
    "quantize axis": lambda x: nbtc.mx.quantize(S, "mxfp8", axis=x),
    "dequantize": lambda x: nbtc.mx.dequantize(x, x),
    "dequantize axis": lambda x: nbtc.mx.dequantize(*nbtc.mx.quantize(S, "mxfp8"), axis=x),
    "scaled kind": lambda x: nbtc.matmul(E, E.T, arch="sm_120", scale_a=SCALES, scale_b=SCALES.T, kind=x),
    "kernel of": lambda x: PROGRAM.module[x],
    "configuration": lambda x: PROGRAM[x],
    "grid": lambda x: PROGRAM[x, 32](X, 1),
    "block": lambda x: PROGRAM[1, x](X, 1),
    "dynamic": lambda x: PROGRAM[1, 32, 0, x](X, 1),
    "pointer": lambda x: PROGRAM[1, 32](x, 1),
    "scalar": lambda x: PROGRAM[1, 32](X, x),
    "args": lambda x: PROGRAM.launch(1, 32, x),
    "shared": lambda x: PROGRAM.launch(1, 32, (X, 1), shared=x),
    "cluster": lambda x: PROGRAM.launch(1, 32, (X, 1), cluster=x),
    "cooperative": lambda x: PROGRAM.launch(1, 32, (X, 1), cooperative=x),
    "memory": lambda x: PROGRAM.launch(1, 32, (X, 1), memory=x),
    "launch threads": lambda x: PROGRAM.launch(1, 32, (X, 1), threads=x),
    "checked": lambda x: PROGRAM.launch(1, 32, (X, 1), checked=x),
    "launch progress": lambda x: PROGRAM.launch(1, 32, (X, 1), progress=x),
    "contract": lambda x: PROGRAM.launch(1, 32, (X, 1), contract=x),
    "timeout": lambda x: PROGRAM.launch(1, 32, (X, 1), timeout=x),
    "map": lambda x: nbtc.TensorMap(x, (16, 16)),
    "map box": lambda x: nbtc.TensorMap(H, x),
    "map swizzle": lambda x: nbtc.TensorMap(H, (16, 16), swizzle=x),
    "map dtype": lambda x: nbtc.TensorMap(H, (16, 16), dtype=x),
    "library": lambda x: nbtc.library(x, gpu="H200"),
    "library of": lambda x: nbtc.library("cublas 13.0", gpu=x),
    "scale": lambda x: nbtc.matmul(H, H, scale_a=x),
    "tensor scale": lambda x: nbtc.mx.dequantize(E, SCALES, x),
    "from_blocked": lambda x: nbtc.mx.from_blocked(np.zeros(512, np.uint8), x, 4),
    "tensor memory": lambda x: nbtc.tcgen05.alloc(x, 32),
    "alloc": lambda x: nbtc.tcgen05.alloc(nbtc.tcgen05.TensorMemory(), x),
    "dealloc": lambda x: nbtc.tcgen05.dealloc(nbtc.tcgen05.TensorMemory(), x, x),
    "tensor ld": lambda x: nbtc.tcgen05.ld(nbtc.tcgen05.TensorMemory(), x),
    "tensor ld num": lambda x: nbtc.tcgen05.ld(nbtc.tcgen05.TensorMemory(), 0, num=x),
    "tensor st": lambda x: nbtc.tcgen05.st(nbtc.tcgen05.TensorMemory(), 0, x),
    "kernel": lambda x: nbtc.kernel(x),
    "device": lambda x: nbtc.device(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments(name: str) -> None:
    for x in WRONG:
        try:
            CALLS[name](x)
        except NbtcError as error:
            assert 30 <= len(str(error)) <= 1500, f"{name}: {str(error)[:200]}"


@pytest.mark.parametrize(
    "name",
    [
        "instrs sparse", "ldm trans", "sp strict", "wmma satf", "cooperative", "checked", "memory", "pointer",
        "progress", "launch progress", "gemm alpha", "args", "grid",
    ],
)  # fmt: skip
def test_arrays_are_no_options_and_masks_are_not_ignored(name: str) -> None:
    for x in (np.ma.masked_array(np.ones(4, np.float32), True), np.ones((2, 2))):
        if name == "pointer" and not isinstance(x, np.ma.MaskedArray):
            continue  # a program may write to any plain array
        with pytest.raises(NbtcError):
            CALLS[name](x)
