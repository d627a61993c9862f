"""The fused micro-kernel as LLVM compiles it for AVX-512: what keeps it fast, seen on whatever machine this runs."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from nbtc.compiler.builder import I8, I64, VectorBuilder
from nbtc.compiler.processors import AVX_512
from nbtc.kernels import panel
from nbtc.kernels.alignment_and_rounding import SumShape

POINTERS = ("a", "ea", "sa", "b", "eb", "sb", "tile", "scratch")
NUMBERS = ("groups", "blocks", "floor", "least", "scale", "reference")


@pytest.fixture(scope="module")
def assembly() -> str:
    """Blocks of eight products to f32, sm_80's: of all shapes the one with most bookkeeping beside its sums."""
    shape = SumShape(AVX_512, True, 8, 24, "rz24", full_range=False, checked=False)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    module = ir.Module("sums")
    module.triple = "x86_64-unknown-linux-gnu"
    names = POINTERS + NUMBERS
    kinds = [I8.as_pointer() if n in POINTERS else I64 for n in names]
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "kernel")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")))
    panel.emit_sums(v, shape, dict(zip(names, f.args, strict=True)))
    v.b.ret_void()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(cpu="znver4", opt=2)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    _, body = re.split(r'^"?nbtc_sums\S*:$', str(machine.emit_assembly(parsed)), maxsplit=1, flags=re.MULTILINE)
    return body


def test_the_frame_is_aligned(assembly: str) -> None:
    """A vector that is spilled must not cross a cache line: where it crossed a page, sums took a fifth longer."""
    assert re.search(r"andq\s+\$-64, %rsp", assembly)
    assert not re.findall(r"movq\s+%r(?!bp)\w+, %rsp", assembly)  # memory taken when the frame has its size
    assert not re.findall(r"vmov(?:dqu\d*|up[sd])\s+%zmm\d+, -?\w*\(%r[sb]p\)", assembly)


def test_elements_of_a_are_loaded_as_integers(assembly: str) -> None:
    """vbroadcastsd would take a shuffle each, a tenth of all operations beside the multiply-adds."""
    assert len(re.findall(r"vpbroadcastq\s.*\(.*%zmm", assembly)) >= 2 * 4 * 8
    assert "vbroadcastsd" not in assembly


def test_few_registers_are_stored(assembly: str) -> None:
    """On Zen 4 four stores beside sixteen multiply-adds take 22 cycles instead of 16.

    A step of 16 chunks stores alignment exponents, start values and results of each, 4 rows of maxima and 4 of counts;
    before the loop, as much as 8 chunks and two steps begin with.  A few more are spilled.
    """
    stores = re.findall(r"vmov\w+\s+%zmm\d+, [^%\n]*\(%", assembly)
    assert len(stores) <= 3 * 16 + 8 + 2 * 8 + 2 * 8 + 16


def test_signs_are_counted_in_bytes(assembly: str) -> None:
    """Counts of sixteen sums take a multiplier for as long as a multiply-add does; of 64 they take it no longer."""
    assert "vpopcntd" not in assembly
    assert len(re.findall(r"vpopcntb\s.*%zmm", assembly)) == 3 * 4  # of a step, and of two before the first
