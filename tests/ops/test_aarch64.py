"""Warp products as compiled for AArch64: they call nothing and, run by an emulator, give the bits of this machine.

The emulation needs `qemu-aarch64` and `aarch64-linux-gnu-ld` (Debian: qemu-user, binutils-aarch64-linux-gnu), no
foreign libraries: a program is nothing but the product's code and three system calls.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder
from nbtc.compiler.cpu import lowering as processors
from nbtc.isa.parse import row
from nbtc.kernels.warps.warp import emit_warp
from nbtc.ops.mma import product as mma

TOOLS = [shutil.which(name) for name in ("qemu-aarch64", "aarch64-linux-gnu-as", "aarch64-linux-gnu-ld")]
TRIPLE, WARPS = "aarch64-unknown-linux-gnu", 64
READ, WRITE, EXIT = 63, 64, 93  # system calls
FORMS = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64.rm",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
]


# LLVM would parse an instruction of ours only where it is built to assemble AArch64
SYSTEM_CALL = ".global system_call\nsystem_call: mov x8, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\nsvc #0\nret\n"


def call(b: ir.IRBuilder, number: int, *arguments: Any) -> None:
    """A system call."""
    f = cgutils.get_or_insert_function(b.module, ir.FunctionType(I64, [I64] * 4), "system_call")
    values = [b.ptrtoint(x, I64) if x.type != I64 else x for x in arguments]
    b.call(f, [ir.Constant(I64, number), *values, *[ir.Constant(I64, 0)] * (3 - len(values))])


def buffer(module: ir.Module, name: str, size: int) -> Any:
    """Memory of the program."""
    g = ir.GlobalVariable(module, ir.ArrayType(I8, size), name)
    g.initializer, g.linkage, g.align = ir.Constant(g.type.pointee, None), "internal", 64
    return g


def program(plan: mma.Prepared, sizes: list[int]) -> ir.Module:
    """Reads images of all warps, one operand after the other; writes results and a byte a warp, 1: not to be used."""
    module = ir.Module("program")
    module.triple = TRIPLE
    warp = ir.Function(module, ir.FunctionType(ir.IntType(1), [I8.as_pointer()] * len(sizes)), "warp")
    warp.attributes.add("noinline")  # it sets its rounding mode
    target = processors.target("aarch64", frozenset({"neon"}))
    inner = VectorBuilder(None, ir.IRBuilder(warp.append_basic_block("entry")), target)
    inner.b.ret(emit_warp(inner, plan.shape, list(warp.args), [inner.const(I32, n) for n in plan.numbers]))
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "_start")
    b = ir.IRBuilder(f.append_basic_block("entry"))
    v = VectorBuilder(None, b, target)
    given, made = buffer(module, "given", WARPS * sum(sizes[:-1])), buffer(module, "made", WARPS * (sizes[-1] + 1))
    call(b, READ, v.int(0), given, v.int(WARPS * sum(sizes[:-1])))
    source, goal = (b.bitcast(g, I8.as_pointer()) for g in (given, made))
    with cgutils.for_range(b, v.int(WARPS)) as loop:
        at, places = 0, []
        for size in sizes[:-1]:
            places.append(v.at(source, at, b.mul(loop.index, v.int(size))))
            at += WARPS * size
        places.append(v.at(goal, b.mul(loop.index, v.int(sizes[-1]))))
        b.store(b.zext(b.call(warp, places), I8), v.at(goal, WARPS * sizes[-1], loop.index))
    call(b, WRITE, v.int(1), made, v.int(WARPS * (sizes[-1] + 1)))
    call(b, EXIT, v.int(0))
    b.unreachable()
    return module


class Compiled(NamedTuple):
    """A form's plan on AArch64, the program's IR and its assembly."""

    name: str
    plan: mma.Prepared
    ir: str
    assembly: str


@pytest.fixture(scope="module", params=FORMS)
def compiled(request: pytest.FixtureRequest) -> Compiled:
    """Once for all that is asked of a form."""
    target = processors.target("aarch64", frozenset({"neon"}))
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as here:
        warnings.simplefilter("ignore")
        here.setattr("nbtc.ops.mma.vector_code.host", lambda: target)
        plan = mma._build(*mma.executable(row(request.param), "sm_90"), 0)
    sizes = [128 * n for n in plan.registers]
    text = str(program(plan, [*sizes[:3], *[128] * plan.row.sparse, sizes[3]]))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(features="+neon", opt=2)
    return Compiled(request.param, plan, text, machine.emit_assembly(llvm.parse_assembly(text)))


def test_code_calls_nothing(compiled: Compiled) -> None:
    """But the program's own functions: no call into a run-time library, no absolute address."""
    called = set(re.findall(r"^\s+(?:bl|b)\s+([A-Za-z_]\w*)", compiled.assembly, re.MULTILINE))
    assert "warp" in called
    assert not (others := {name for name in called - {"warp", "system_call"} if not name.startswith("nbtc_")}), others
    assert "inttoptr" not in compiled.ir


def emulated(form: Compiled, images: list[np.ndarray], folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(results, which warps are to be done by the general code) of the emulated processor."""
    size = 32 * form.plan.registers[3]
    (folder / "a.s").write_text(form.assembly + "\n.text\n" + SYSTEM_CALL)
    (folder / "given").write_bytes(b"".join(x.tobytes() for x in images))
    emulator, assembler, linker = TOOLS
    subprocess.run([assembler, "-o", folder / "a.o", folder / "a.s"], check=True)
    subprocess.run([linker, "-o", folder / "a", folder / "a.o"], check=True)
    with open(folder / "given", "rb") as given:
        raw = subprocess.run([emulator, folder / "a"], stdin=given, capture_output=True, check=True, timeout=120).stdout
    return np.frombuffer(raw[: 4 * WARPS * size], np.uint32), np.frombuffer(raw[4 * WARPS * size :], np.uint8)


@pytest.mark.skipif(None in TOOLS, reason="no emulator of AArch64, or no assembler and linker for it")
@pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
def test_bits_are_those_of_this_machine(compiled: Compiled, tmp_path: Path) -> None:
    form, rng = row(compiled.name), np.random.default_rng(len(compiled.name))
    images = [rng.integers(0, 1 << 32, (WARPS, 32, n), dtype=np.uint32) for n in compiled.plan.registers[:3]]
    if form.a.format.kind == "float" and form.a.format.bits < 64:  # numbers near one
        images = [ordinary(x, f.format.name) for x, f in zip(images, (form.a, form.b, form.c), strict=True)]
    meta = np.full((WARPS, 32), 0x44444444, np.uint32) if form.sparse else None
    want = mma.execute(form, *images, meta=meta)
    found, bad = emulated(compiled, images if meta is None else [*images, meta], tmp_path)
    good = bad == 0
    assert good.mean() > 0.8  # the others hold Inf or NaN
    assert (found.reshape(WARPS, -1)[good] == want.reshape(WARPS, -1)[good]).all()


def ordinary(words: np.ndarray, fmt: str) -> np.ndarray:
    """The same words with exponents of numbers from 2**-4 to 2**3."""
    narrow = {"f16": (10, 15, np.uint16), "bf16": (7, 127, np.uint16)}
    mantissa, bias, kind = narrow.get(fmt, (23, 127, np.uint32))
    x = words.view(kind)
    field = x >> mantissa & 7 | 0
    sign = 1 << (8 * x.itemsize - 1)
    kept = x & kind(sign | (1 << mantissa) - 1)
    return (kept | ((field + (bias - 4)) << mantissa).astype(kind)).astype(kind).view(np.uint32)
