"""Scalar rows by themselves: compile a few of them into one module and run them on arrays.

A test of a row needs no program: this is the shortest way from an instruction's text to the bits it gives.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from nbtc.compiler.builder import I1, I8, I64, VectorBuilder, vector
from nbtc.executor.emit.form import WIDTHS, Form, Op
from nbtc.executor.rows.forms import find
from nbtc.executor.rows.uses import refusal

LANES = 32
Words = NDArray[Any]


class RowCase(NamedTuple):
    """An instruction's text with what its operands add to it.

    selectors: as in `Op`.  constants: sources that are immediates, by position.  given: how many sources are written,
    when the form lets the last be left out.
    """

    text: str
    selectors: tuple[str, ...] = ()
    constants: tuple[tuple[int, int], ...] = ()
    given: int | None = None

    @property
    def form(self) -> Form:
        """The row, or a LookupError that says why there is none."""
        found = find(self.text)
        if found is None:
            raise LookupError(refusal(self.text))
        return found[0]

    @property
    def sources(self) -> tuple[str, ...]:
        """Types of the sources that are written."""
        return self.form.sources[: self.given]

    @property
    def op(self) -> Op:
        """The parts of the name."""
        opcode, *modifiers = self.text.split(".")
        return Op(opcode, tuple(modifiers), self.selectors)


def word(kind: str) -> np.dtype[Any]:
    """The unsigned dtype that holds one value of a PTX type; a predicate takes a byte."""
    return np.dtype(f"u{max(WIDTHS[kind], 8) // 8}")


class Rows:
    """Compiled rows: `rows(i, arrays)` runs case i on arrays of words of one length, a multiple of 32."""

    cases: tuple[RowCase, ...]
    engine: Any

    def __init__(self, cases: Sequence[RowCase], lanes: int | None = LANES, features: str | None = None) -> None:
        self.cases = tuple(cases)
        self.lanes = lanes
        module = ir.Module("rows")
        module.triple = llvm.get_process_triple()
        for i, case in enumerate(self.cases):
            _function(module, f"row_{i}", case, lanes)
        self.engine = _compile(str(module), features)

    def __call__(self, index: int, sources: Sequence[Words]) -> tuple[Words, ...]:
        """The results of a case, one array each."""
        case = self.cases[index]
        given = [np.ascontiguousarray(x, word(kind)) for x, kind in zip(sources, case.sources, strict=True)]
        count = given[0].size
        if any(x.size != count for x in given) or count % LANES:
            raise ValueError(f"{case.text}: arrays of {[x.size for x in given]} words; give one multiple of {LANES}")
        results = tuple(np.zeros(count, word(kind)) for kind in case.form.results)
        pointers = (ctypes.c_void_p * (len(given) + len(results)))(*(x.ctypes.data for x in (*given, *results)))
        address = self.engine.get_function_address(f"row_{index}")
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)(pointers, count)
        return results


def _compile(text: str, features: str | None) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    own = llvm.get_host_cpu_features().flatten() if features is None else features
    cpu = llvm.get_host_cpu_name() if features is None else ""
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=own, opt=2, jit=True)
    module = llvm.parse_assembly(text)
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _function(module: ir.Module, name: str, case: RowCase, lanes: int | None) -> None:
    """A loop over all elements, `lanes` at a time; None: one scalar at a time."""
    pointer = I8.as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer.as_pointer(), I64]), name)
    entry, body, leave = (function.append_basic_block(x) for x in ("entry", "body", "leave"))
    b = ir.IRBuilder(entry)
    v = VectorBuilder(None, b)
    arrays = [b.load(b.gep(function.args[0], [v.int(i)])) for i in range(len(case.sources) + len(case.form.results))]
    b.branch(body)
    b.position_at_end(body)
    index = b.phi(I64)
    index.add_incoming(v.int(0), entry)
    constants = dict(case.constants)
    sources = []
    for i, kind in enumerate(case.sources):
        bits = WIDTHS[kind]
        t = ir.IntType(bits) if lanes is None else vector(ir.IntType(bits), lanes)
        sources.append(v.const(t, constants[i]) if i in constants else _load(v, arrays[i], index, bits, lanes))
    results = case.form.emit(v, case.op, *sources)
    together = results if isinstance(results, tuple) else (results,)
    for kind, array, result in zip(case.form.results, arrays[len(case.sources) :], together, strict=True):
        _store(v, array, index, WIDTHS[kind], result)
    after = b.add(index, v.int(lanes or 1))
    index.add_incoming(after, b.block)
    b.cbranch(b.icmp_signed("<", after, function.args[1]), body, leave)
    ir.IRBuilder(leave).ret_void()


def _load(v: VectorBuilder, array: Any, index: Any, bits: int, lanes: int | None) -> Any:
    held = ir.IntType(max(bits, 8))
    x = v.load(array, held if lanes is None else vector(held, lanes), offset=v.b.mul(index, v.int(held.width // 8)))
    return x if bits == held.width else v.b.trunc(x, ir.IntType(bits) if lanes is None else vector(I1, lanes))


def _store(v: VectorBuilder, array: Any, index: Any, bits: int, x: Any) -> None:
    held = ir.IntType(max(bits, 8))
    lanes = x.type.count if isinstance(x.type, ir.VectorType) else None
    wide = x if bits == held.width else v.b.zext(x, held if lanes is None else vector(held, lanes))
    v.store(wide, array, offset=v.b.mul(index, v.int(held.width // 8)))
