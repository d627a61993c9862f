"""The fused micro-kernels as LLVM compiles them for processors that need not be here: what their loops consist of."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I8, I64, VectorBuilder
from nbtc.compiler.lowering import LOWERINGS, Target
from nbtc.compiler.native import binding
from nbtc.compiler.processors import AVX_512, AVX_512_FP16, Processor
from nbtc.kernels import panel
from nbtc.kernels.alignment_and_rounding import SumShape
from nbtc.kernels.fused_sum import PANEL, ROWS
from nbtc.kernels.panel_code import LEVEL

TRIPLE = "x86_64-unknown-linux-gnu"
POINTERS = ("a", "ea", "sa", "b", "eb", "sb", "tile", "scratch")
NUMBERS = ("groups", "blocks", "floor", "least", "scale", "reference")
# names of LLVM's, and their rows; with AVX2 the loops are nested, so that a look at the text does not count
CPUS = {"znver4": AVX_512, "sapphirerapids": AVX_512_FP16}  # names of LLVM's, and their rows
# f64 elements, products of a block, F and rounding of a sum
SHAPES = {
    "f16, bf16": (True, 16, 25, "rz24"),
    "tf32, f16 of sm_80": (True, 8, 25, "rz24"),
    "f16 accumulators": (True, 16, 25, "rne11"),
    "e4m3, e5m2 unit": (False, 32, 13, "rz14"),
}


def shape_of(row: Processor, name: str) -> SumShape:
    """What a processor's kernel for operands that span few binades is compiled for."""
    return SumShape(row, *SHAPES[name], full_range=False, checked=False, each_watched=False, by_turns=row.masks)


@cache
def assembly(cpu: str, name: str) -> str:
    """The text of the sums of a shape for a processor, as large products have them."""
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    row, module, names = CPUS[cpu], ir.Module("sums"), POINTERS + NUMBERS
    module.triple = TRIPLE
    kinds = [I8.as_pointer() if n in POINTERS else I64 for n in names]
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "kernel")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")), Target(LOWERINGS[row], row.needs))
    panel.emit_sums(v, shape_of(row, name), dict(zip(names, f.args, strict=True)))
    v.b.ret_void()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, opt=3)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=LEVEL)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(parsed, passes)
    _, body = re.split(r'^"?nbtc_sums.*:$', str(machine.emit_assembly(parsed)), maxsplit=1, flags=re.MULTILINE)
    return body


class Operations(NamedTuple):
    """Of a kernel's steps, for each register of 32-bit sums (a chunk).

    vector: operations on vectors but loads, stores and broadcasts from memory.  multiply_adds: those among them.
    """

    vector: float
    multiply_adds: float
    stores: float


def operations(cpu: str, name: str) -> Operations:
    """What a kernel's loop does for a chunk.

    >>> found = operations("sapphirerapids", "f16, bf16")
    >>> found.multiply_adds, found.vector < 56
    (32.0, True)
    """
    step = max(
        re.split(r"^\.LBB\S+:.*$", assembly(cpu, name), flags=re.MULTILINE), key=lambda text: text.count("vfmadd")
    )
    done = re.findall(r"^\t(v\w+)\t(.*)$", step, re.MULTILINE)
    stored = sum(op.startswith("vmov") and where.endswith(")") for op, where in done)
    moved = sum(op.startswith("vmov") or ("broadcast" in op and "(" in where) for op, where in done)
    chunks = ROWS * PANEL // CPUS[cpu].lanes
    products = sum(op.startswith("vfmadd") for op, _ in done)
    return Operations((len(done) - moved) / chunks, products / chunks, stored / chunks)
