"""The emitters with nothing but an IR builder, for processors that are not here: what LLVM makes of their code."""

from __future__ import annotations

import re
import warnings

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, VectorBuilder
from nbtc.compiler.cpu import lowering as processors
from nbtc.isa.parse import row
from nbtc.kernels.warps.warp import emit_warp
from nbtc.ops.mma import product as mma

TARGETS = {
    "aarch64": ("aarch64-unknown-linux-gnu", "", "+neon"),
    "avx2": ("x86_64-unknown-linux-gnu", "haswell", ""),
    "sse2": ("x86_64-unknown-linux-gnu", "x86-64", ""),
}
FORMS = ["mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16"]
FEATURES = {"aarch64": {"neon"}, "avx2": {"avx2", "fma", "f16c", "ssse3"}, "sse2": set()}


@pytest.fixture(scope="module", autouse=True)
def _all_targets() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@pytest.mark.parametrize(  # other forms: for AArch64 in test_aarch64.py, run on x86 in test_vector.py
    ("where", "name"), [("aarch64", FORMS[1]), *((where, name) for where in ("avx2", "sse2") for name in FORMS)]
)
def test_code_calls_nothing(where: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare module, optimised and compiled: no call into a run-time library, no absolute address."""
    triple, processor, features = TARGETS[where]
    target = processors.target(triple.partition("-")[0], frozenset(FEATURES[where]))
    assert target is not None
    monkeypatch.setattr("nbtc.ops.mma.vector_code.host", lambda: target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = mma._build(*mma.executable(row(name), "sm_90"), 0)
    module = ir.Module("bare")
    module.triple = triple
    count = len(plan.shape.images)
    f = ir.Function(module, ir.FunctionType(I1, [I8.as_pointer()] * count), "product")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")), target)
    numbers = [v.const(I32, n) for n in plan.numbers]
    v.b.ret(emit_warp(v, plan.shape, list(f.args), numbers))
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, features=features, opt=2)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    text = machine.emit_assembly(parsed)
    called = re.findall(r"^\s+(?:bl|callq?|jmp)\s+([A-Za-z_]\w*)", text, re.MULTILINE)
    assert not (others := {name for name in called if not name.startswith("nbtc_")}), others
    assert "inttoptr" not in str(module)
