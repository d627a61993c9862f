"""Kernels as LLVM compiles them for AArch64, where no machine is at hand: legal code that calls no library."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.cpu import lowering as processors
from nbtc.compiler.cpu.processors import NEON
from nbtc.compiler.machine_code import emitted
from nbtc.formats.table import FORMATS
from nbtc.kernels.block_scaled import group_dot
from nbtc.kernels.panels import panel, panel_code, panel_operands, panel_pack
from nbtc.kernels.panels.alignment_and_rounding import SumShape
from nbtc.kernels.words import words, words_pack
from nbtc.kernels.words.dot import DotElements
from nbtc.ops.wgmma import decode
from nbtc.ops.wgmma import words as warpgroup_words

TRIPLE, FEATURES = "aarch64-unknown-linux-gnu", "+neon"
P = I8.as_pointer()


@pytest.fixture(autouse=True)
def aarch64(monkeypatch: pytest.MonkeyPatch) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for module in (panel_pack, words, decode):
        monkeypatch.setattr(module, "host_processor", lambda: NEON)


def calls(emit: Callable[[VectorBuilder, list[Any]], Any], *arguments: ir.Type) -> set[str]:
    """What the code of a function calls beside its own module's functions."""
    module = ir.Module("bare")
    module.triple = TRIPLE
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), "kernel")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")))
    v.target = processors.target("aarch64", frozenset({"neon"}))
    emit(v, list(f.args))
    v.b.ret_void()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu="", features=FEATURES, opt=2)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    text = machine.emit_assembly(parsed)
    own = {g.name for g in module.functions if not g.is_declaration}
    return set(re.findall(r"^\s+(?:bl|b)\s+([A-Za-z_]\w*)", text, re.MULTILINE)) - own


SHAPES = {
    "f16": SumShape(NEON, True, 16, 25, "rz24", full_range=False, checked=True),
    "f16 to f16": SumShape(NEON, True, 16, 25, "rne11", full_range=False, checked=False),
    "bf16 of any exponent": SumShape(NEON, True, 16, 25, "rz24", full_range=True, checked=True),
    "fp8": SumShape(NEON, False, 32, 13, "rz14", full_range=False, checked=False),
    "fp8 to f16, any exponent": SumShape(NEON, False, 32, 13, "rne11", full_range=True, checked=False),
}


@pytest.mark.parametrize("name", SHAPES)
def test_sums_of_a_panel(name: str) -> None:
    numbers = ("groups", "blocks", "floor", "least", "scale", "reference")
    names = (
        "a",
        "ea",
        "sa",
        "b",
        "eb",
        "sb",
        "groups",
        "tile",
        "blocks",
        "floor",
        "least",
        "scale",
        "reference",
        "scratch",
    )
    kinds = [I64 if n in numbers else P for n in names]
    found = calls(lambda v, args: panel.emit_sums(v, SHAPES[name], dict(zip(names, args, strict=True))), *kinds)
    assert not found


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("fmt", ["f16", "bf16", "tf32", "e4m3", "e2m3"])
def test_packing_of_a_panel(fmt: str, columns: bool, wide: bool) -> None:
    how, kinds = panel_operands.Packing(int(wide), 16, full_range=0, emulated=0, scaled=0), panel_pack.PackArguments

    def emit(v: VectorBuilder, values: list[Any]) -> None:
        panel_code.write_packer(v, how, FORMATS[fmt], columns, emitted._named(kinds, iter(values)))

    assert not calls(emit, *emitted._ir_types(kinds))


@pytest.mark.parametrize(
    ("op", "source"),
    [
        (words.PAIRS, words_pack.BYTE_PAIRS),
        (words.PAIRS, words_pack.NIBBLE_PAIRS),
        (words.XOR, words_pack.WORDS),
        (words.AND, words_pack.WORDS),
        (words.FMA, words_pack.WORDS),
    ],
)
def test_products_of_words(op: int, source: int) -> None:
    rows, columns = words.WordRowsArguments, words.WordColumnsArguments

    def multiply(v: VectorBuilder, values: list[Any]) -> None:
        words._WordRows(v, op, words.WordsVariant(), source, emitted._named(rows, iter(values))).emit()

    def pack(v: VectorBuilder, values: list[Any]) -> None:
        words.pack_columns(v, op, source, emitted._named(columns, iter(values)))

    assert not calls(multiply, *emitted._ir_types(rows))
    assert not calls(pack, *emitted._ir_types(columns))


@pytest.mark.parametrize("chunks", [2, 4])
def test_groups_with_scales(chunks: int) -> None:
    def emit(v: VectorBuilder, values: list[Any]) -> None:
        accumulators = [v.load(values[0], vector(I32, group_dot.LANES), 4)] * group_dot.ROWS
        m = processors.lowering(v)
        done, bad = group_dot._step(m, chunks, accumulators, values[1:4], [values[4:7]] * group_dot.ROWS)
        for x, place in zip([*done, *bad], values[7:], strict=True):
            v.store(x, place, 2)

    assert not calls(emit, *[P] * (7 + 2 * group_dot.ROWS))


@pytest.mark.parametrize("fmt", ["f16", "bf16", "tf32", "e4m3", "e5m2"])
@pytest.mark.parametrize("side", ["rows", "columns"])
def test_operands_of_a_warpgroup(side: str, fmt: str) -> None:
    names = ("raw", "flip", "offset", "scale", "values", "exponents", "signs", "tiles")

    def emit(v: VectorBuilder, values: list[Any]) -> None:
        getattr(decode._OperandPacker(v, FORMATS[fmt], fmt != "e4m3", dict(zip(names, values, strict=True))), side)()

    assert not calls(emit, P, I32, I64, F32, P, P, P, I64)


@pytest.mark.parametrize("elements", [DotElements(8, True, False), DotElements(1, both=True)], ids=["bytes", "bits"])
def test_words_of_a_warpgroup(elements: DotElements) -> None:
    names = ("a", "b", "tiles", "tile", "ahead")

    def emit(v: VectorBuilder, values: list[Any]) -> None:
        warpgroup_words._Words(v, elements, True, dict(zip(names, values, strict=True))).emit()

    assert not calls(emit, P, P, I64, P, P)


def test_a_call_would_be_found() -> None:
    def emit(v: VectorBuilder, values: list[Any]) -> None:
        v.b.store(v.b.frem(*values[:2]), v.b.bitcast(values[2], F64.as_pointer()))

    assert calls(emit, F64, F64, P) == {"fmod"}
