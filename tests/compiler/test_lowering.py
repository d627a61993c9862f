"""Operations that some processors have no instruction for: the code in its place computes the same."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from nbtc.compiler.builder import I8, I32, VectorBuilder, vector
from nbtc.compiler.cpu.host import AVX512
from nbtc.compiler.cpu.lowering import LOWERINGS, LoweringTarget, host
from nbtc.compiler.cpu.plain_lowering import Lowering
from nbtc.compiler.cpu.processors import processor

BYTES = 64
P = I8.as_pointer()
GENERIC = LoweringTarget(Lowering, frozenset())
TARGETS = pytest.mark.parametrize("target", [GENERIC, host() or GENERIC], ids=["generic", "this processor"])


def computed(name: str, words: bool, target: LoweringTarget, x: Any, y: Any, *more: Any) -> Any:
    """A lowering's operation on two registers of 64 bytes (y None: one), taken as bytes or as words, and on numbers."""
    kind = vector(I32, BYTES // 4) if words else vector(I8, BYTES)
    module = ir.Module("one")
    module.triple = llvm.get_process_triple()
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [P, P, P]), "operation")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")))
    how = target.lowering(v, target.has)
    given = [v.load(p, kind, 1) for p, a in zip(f.args[:2], (x, y), strict=True) if a is not None]
    v.store(getattr(how, name)(*given, *more), f.args[2], 1)
    v.b.ret_void()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    out = np.zeros(BYTES, np.uint8)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(engine.get_function_address("operation"))
    call(x.ctypes.data, None if y is None else y.ctypes.data, out.ctypes.data)
    return out


@TARGETS
def test_sums_of_pairs_of_bytes(target):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 100, BYTES, np.uint8), rng.integers(-100, 101, BYTES, np.int8)
    a[:4], b[:2], b[2:4] = 255, 64, -64  # the largest sums: 32640 and its opposite
    want = (a.astype(np.int16) * b).reshape(-1, 2).sum(1)
    assert (computed("octet_pairs", True, target, a, b).view(np.int16) == want).all()


@TARGETS
def test_bytes_by_their_places(target):
    rng = np.random.default_rng(1)
    x, places = rng.integers(0, 256, BYTES, np.uint8), rng.integers(0, 16, BYTES, np.uint8)
    want = np.take_along_axis(x.reshape(-1, 16), places.reshape(-1, 16).astype(np.int64), axis=1)
    assert (computed("byte_shuffle", False, target, x, places).reshape(-1, 16) == want).all()


@TARGETS
@pytest.mark.parametrize("starts", [(0, 8, 16, 24), (24, 1, 7, 13)])
def test_bytes_from_bits_of_words(target, starts):
    x = np.random.default_rng(2).integers(0, 1 << 32, BYTES // 4, np.uint32)
    want = [[int(n) >> start & 255 for start in starts] for n in x]
    assert computed("octets_from", True, target, x, None, starts).reshape(-1, 4).tolist() == want


VNNI, COUNTS = {"avx512vnni"}, {"avx512vnni", "avx512bitalg", "avx512vpopcntdq"}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (set(), "AVX-512"),  # Skylake
        (VNNI, "AVX-512 VNNI"),  # Cascade Lake
        (VNNI | {"avx512bf16"}, "AVX-512 VNNI"),  # Cooper Lake
        (COUNTS, "AVX-512 BITALG"),  # Ice Lake
        (COUNTS | {"avx512bf16", "avx512fp16"}, "AVX-512 FP16"),  # Sapphire Rapids
        (COUNTS | {"avx512bf16"}, "AVX-512 Zen"),
    ],
)
def test_processors_with_avx512(more: set[str], name: str) -> None:
    """Whose every operation takes a multiplier's port, which multiply bytes, and which count bits."""
    row = processor("x86_64", AVX512 | more)
    assert row is not None and row in LOWERINGS
    assert (row.name, row.two_ports, row.dots) == (name, "Zen" not in name, name not in ("AVX-512", "AVX-512 Zen"))
    assert row.counts == (more >= COUNTS)


@TARGETS
@pytest.mark.parametrize("possible", [0x03030303, 0x30303030, 0xF0030C0F, 0xFFFFFFFF])
def test_words_and_the_bits_set_in_others(target, possible):
    rng = np.random.default_rng(possible)
    total, x = (rng.integers(0, 1 << 32, BYTES // 4, np.uint32) for _ in range(2))
    x[0] = 0xFFFFFFFF
    x &= np.uint32(possible)
    found = computed("plus_bits", True, target, total, x, possible).view(np.uint32)
    assert (found == total + np.bitwise_count(x)).all()
