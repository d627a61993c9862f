"""Kernels of large products as LLVM compiles them for processors that need not be here: what their loops consist of."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I8, I64, VectorBuilder
from nbtc.compiler.cpu.lowering import LOWERINGS, LoweringTarget
from nbtc.compiler.cpu.processors import AVX2, AVX_512_FP16, AVX_512_VNNI, AVX_512_ZEN, Processor
from nbtc.compiler.machine_code.emitted import _ir_types, _named
from nbtc.compiler.machine_code.native import binding
from nbtc.formats.table import FORMATS
from nbtc.kernels.panels import panel
from nbtc.kernels.panels.alignment_and_rounding import SumShape
from nbtc.kernels.panels.fused_sum import PANEL, ROWS
from nbtc.kernels.panels.panel_code import LEVEL, write_packer
from nbtc.kernels.panels.panel_operands import Packing
from nbtc.kernels.panels.panel_pack import PackArguments
from nbtc.kernels.words import words

TRIPLE = "x86_64-unknown-linux-gnu"
POINTERS = ("a", "ea", "sa", "b", "eb", "sb", "tile", "scratch")
NUMBERS = ("groups", "blocks", "floor", "least", "scale", "reference")
# names of LLVM's, and their rows
CPUS = {
    "znver4": AVX_512_ZEN,
    "sapphirerapids": AVX_512_FP16,
    "cascadelake": AVX_512_VNNI,
    "znver3": AVX2,
    "alderlake": AVX2,
}
# f64 elements, products of a block, F and rounding of a sum
SHAPES = {
    "f16, bf16": (True, 16, 25, "rz24"),
    "tf32, f16 of sm_80": (True, 8, 25, "rz24"),
    "f16 accumulators": (True, 16, 25, "rne11"),
    "e4m3, e5m2 unit": (False, 32, 13, "rz14"),
}
# operation, products of a word, and the instruction that the loop is known by; bits may be counted by tables
WORDS = {
    "s8, u8, s4, u4": (words.DOT, 4, "vpdpbusd"),
    "b1": (words.XOR, 32, "vpopcntd"),
    "f64": (words.FMA, 1, "vfmadd"),
}

PAIRS = words.PAIRS, 2, "vpmaddwd"  # bytes without AVX-512


# format, f64 elements, products of a block, whether elements are widened
PACKED = {
    "f16": ("f16", True, 16, False),
    "bf16": ("bf16", True, 16, False),
    "tf32": ("tf32", True, 4, False),
    "e4m3 unit": ("e4m3", False, 32, False),
    "e4m3, mma.sync": ("e4m3", True, 16, True),
}


def words_row(cpu: str, name: str) -> tuple[int, int, str]:
    """A processor's row of `WORDS`."""
    return PAIRS if WORDS[name][0] == words.DOT and CPUS[cpu] is AVX2 else WORDS[name]


def shape_of(row: Processor, name: str) -> SumShape:
    """What a processor's kernel for operands that span few binades is compiled for."""
    return SumShape(
        row, *SHAPES[name], full_range=False, checked=False, each_watched=False, by_turns=row.masks, planes=row.lookup
    )


@cache
def assembly(cpu: str, name: str) -> str:
    """The text of the sums of a shape for a processor, as large products have them."""

    def emit(v: VectorBuilder, x: dict[str, Any]) -> None:
        panel.emit_sums(v, shape_of(CPUS[cpu], name), x)

    return re.split(r'^"?nbtc_sums.*:$', _compiled(cpu, emit), maxsplit=1, flags=re.MULTILINE)[1]


@cache
def words_assembly(cpu: str, name: str) -> str:
    """The text of a register tile of words for a processor."""

    def emit(v: VectorBuilder, x: dict[str, Any]) -> None:
        places = [x[at] for at in POINTERS[:5]]
        fresh = v.b.icmp_signed("!=", x["scale"], v.int(0))
        words.TileEmitter(v, words_row(cpu, name)[0], 0, places, x["groups"], fresh, CPUS[cpu]).write(x["blocks"])

    return _compiled(cpu, emit)


@cache
def packing_assembly(cpu: str, name: str, columns: bool) -> str:
    """The text of what packs rows of A, or columns of B, for a processor; exponents lie as they mostly do."""
    fmt, in_f64, block, widened = PACKED[name]
    row = CPUS[cpu]
    how = Packing(int(in_f64), block, full_range=0, emulated=int(widened), scaled=0, by_turns=int(row.masks))

    def emit(v: VectorBuilder, x: dict[str, Any]) -> None:
        # what it gives is used, or it would not be computed
        given = write_packer(v, how, FORMATS[fmt], columns, _named(PackArguments, iter(x.values())), row)
        if given is not None:
            v.store(given, x["0"])

    return _compiled(cpu, emit, {str(n): t for n, t in enumerate(_ir_types(PackArguments))})


def _compiled(
    cpu: str, emit: Callable[[VectorBuilder, dict[str, Any]], None], kinds: dict[str, ir.Type] | None = None
) -> str:
    """The assembly of a function of these arguments; if none are given, of POINTERS and NUMBERS."""
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    row, module = CPUS[cpu], ir.Module("sums")
    kinds = kinds or dict.fromkeys(POINTERS, I8.as_pointer()) | dict.fromkeys(NUMBERS, I64)
    module.triple = TRIPLE
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), list(kinds.values())), "kernel")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")), LoweringTarget(LOWERINGS[row], row.needs))
    emit(v, dict(zip(kinds, f.args, strict=True)))
    v.b.ret_void()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, opt=3)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=LEVEL)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(parsed, passes)
    return str(machine.emit_assembly(parsed))


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
    row, text, multiply_add = CPUS[cpu], assembly(cpu, name), "vfmadd"
    chunks = ROWS * PANEL // row.lanes
    if row.mixed:
        return _counted(text, multiply_add, chunks)
    tile = _counted(text, multiply_add, row.sums // shape_of(row, name).parts)  # in a loop within that of the steps
    step = _counted(text, "vpmaxub", chunks)  # exponent maxima
    return Operations(tile.vector + step.vector, tile.multiply_adds, tile.stores + step.stores)


def words_operations(cpu: str, name: str) -> Operations:
    """What the loop of integer, bit and f64 products does for sixteen sums; instructions that multiply count as such.

    >>> words_operations("znver4", "s8, u8, s4, u4").vector, words_operations("znver4", "f64").vector
    (1.0, 2.0)
    """
    op, _, instruction = words_row(cpu, name)
    text = words_assembly(cpu, name)
    if instruction == "vpmaddwd" and "vpdpwssd" in text:  # LLVM knows that it adds, too
        instruction = "vpdpwssd"
    if instruction == "vpopcntd" and not CPUS[cpu].counts:  # bits are counted by a table
        instruction = "vpshufb"
    tile = words.tile_of(op, CPUS[cpu])
    return _counted(text, instruction, tile.rows * tile.width // CPUS[cpu].lanes)


def packing_operations(cpu: str, name: str, columns: bool) -> Operations:
    """What the loop that packs rows of A, or columns of B, does for each 64 elements; values are multiplied once.

    >>> packing_operations("znver4", "f16", True).vector < 70, packing_operations("znver4", "f16", False).vector < 60
    (True, True)
    """
    _, in_f64, _, _ = PACKED[name]
    text, lanes = packing_assembly(cpu, name, columns), CPUS[cpu].lanes // (2 if in_f64 else 1)
    products = _counted(text, "vfmadd", 1).multiply_adds
    return _counted(text, "vfmadd", int(products * lanes) / PANEL)


def _counted(text: str, instruction: str, chunks: float) -> Operations:
    """Operations of the loop with the most of an instruction, for each of some chunks."""
    step = max(re.split(r"^\.LBB\S+:.*$", text, flags=re.MULTILINE), key=lambda part: part.count(instruction))
    step = re.split(r"^\tj\w+\t.*$", step, maxsplit=1, flags=re.MULTILINE)[0]  # what follows it stores sums
    done = re.findall(r"^\t(?:\{vex\}\s+)?(v\w+)\s+(.*)$", step, re.MULTILINE)
    stored = sum(op.startswith("vmov") and where.endswith(")") for op, where in done)
    moved = sum(op.startswith("vmov") or ("broadcast" in op and "(" in where) for op, where in done)
    products = sum(op.startswith(instruction) for op, _ in done)
    return Operations((len(done) - moved) / chunks, products / chunks, stored / chunks)
