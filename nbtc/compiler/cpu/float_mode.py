"""The processor's floating-point mode: what compiled code needs, and that the caller gets its own back.

A thread's control word says how sums round, and whether subnormal operands and results count as zero.  Libraries built
for speed leave it changed, and a thread starts with the word of the one that started it.  nbtc's arithmetic is only
right in the default mode, so each way into compiled code sets that and restores the caller's word afterwards, whether
it returns or raises: calls from Python by a frame around the native function (`jit` puts it there), calls from other
compiled code by `call_in_default_mode`, arithmetic done by NumPy by `in_default_float_mode`.

x86 has MXCSR and AArch64 FPCR.  Elsewhere nothing is set: callers must then be in the default mode themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder
from nbtc.compiler.callees import code_of
from nbtc.errors import CompilerError

NEAREST, DOWN, UP, TOWARD_ZERO = "nearest", "down", "up", "toward zero"


class ControlRegister(NamedTuple):
    """A processor's control word: its intrinsics, type, and the words of the modes that nbtc uses."""

    get: str
    set: str
    type: ir.Type
    by_address: bool  # the intrinsics take a place in memory, not the word
    modes: dict[str, int]


def _modes(base: int, shift: int, *order: str) -> dict[str, int]:
    """Control words of the rounding modes, which are numbered in some order from a bit on."""
    return {mode: base | n << shift for n, mode in enumerate(order)}


# MXCSR: all exceptions masked (bits 7 to 12), rounding in bits 13 and 14, no FTZ (15), no DAZ (6)
_MXCSR = ControlRegister(
    "llvm.x86.sse.stmxcsr", "llvm.x86.sse.ldmxcsr", I32, True, _modes(0x1F80, 13, NEAREST, DOWN, UP, TOWARD_ZERO)
)
# FPCR: no traps, rounding in bits 22 and 23, no FZ (24), no default NaN (25)
_FPCR = ControlRegister(
    "llvm.aarch64.get.fpcr", "llvm.aarch64.set.fpcr", I64, False, _modes(0, 22, NEAREST, UP, DOWN, TOWARD_ZERO)
)
REGISTERS = {"x86_64": _MXCSR, "i686": _MXCSR, "i386": _MXCSR, "aarch64": _FPCR, "arm64": _FPCR}


def register_of(builder: Any) -> ControlRegister | None:
    """The control word of the processor that a module is compiled for, None where nbtc knows none.

    Raises CompilerError where the module does not say: its code would round as whatever mode it meets.
    """
    name = str(builder.module.triple).partition("-")[0]
    if name in ("", "unknown"):
        raise CompilerError(
            f"a module with the triple {builder.module.triple!r} names no processor, so its code can't be given a "
            "floating-point mode: set module.triple first, for example to llvmlite.binding.get_process_triple()"
        )
    return REGISTERS.get(name)


def _place(v: VectorBuilder, register: ControlRegister) -> Any:
    """Memory for a control word, the first thing of its function.

    Anywhere else in the entry block LLVM may cut the block before it (a division does): the frame then has no size that
    is known, and no alignment.
    """
    b = v.b
    entry = b.function.entry_basic_block
    with b.goto_block(entry):
        b.position_at_start(entry)
        return b.alloca(register.type)


def _read(v: VectorBuilder, register: ControlRegister) -> Any:
    if not register.by_address:
        return v.call(register.get, register.type)
    place = _place(v, register)
    v.call(register.get, ir.VoidType(), v.b.bitcast(place, I8.as_pointer()))
    return v.b.load(place)


def _write(v: VectorBuilder, register: ControlRegister, word: Any) -> None:
    if not register.by_address:
        v.call(register.set, ir.VoidType(), word)
        return
    place = _place(v, register)
    v.b.store(word, place)
    v.call(register.set, ir.VoidType(), v.b.bitcast(place, I8.as_pointer()))


def enter(v: VectorBuilder, mode: str = NEAREST) -> Any:
    """Emit: switch to a mode, all numbers kept as they are, no exceptions; returns the word to `leave` with.

    To the default mode from any, the caller's; to another one from the default mode alone.

    LLVM takes arithmetic to be free of modes.  What needs this one belongs into a function that is not inlined and
    that is called between `enter` and `leave`, or reads and writes memory between them.
    """
    register = register_of(v.b)
    if register is None:
        return None
    if mode == NEAREST:
        old = _read(v, register)
    else:  # only compiled code asks for another mode, and it runs in the default one: reading the control word would
        # wait for all arithmetic under way, at every product of a program
        old = ir.Constant(register.type, register.modes[NEAREST])
    _write(v, register, ir.Constant(register.type, register.modes[mode]))
    return old


def leave(v: VectorBuilder, old: Any) -> None:
    """Emit: the mode before `enter`."""
    register = register_of(v.b)
    if register is not None:
        _write(v, register, old)


def separate_function(
    module: ir.Module, name: str, result: ir.Type, parameters: Sequence[ir.Type], target: Any = None
) -> tuple[ir.Function, VectorBuilder]:
    """A new function of the module, and what writes its body: never inlined, so that no other code sees its mode.

    target: as of `VectorBuilder`.
    """
    f = ir.Function(module, ir.FunctionType(result, parameters), name)
    f.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        f.attributes.add(attribute)
    return f, VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")), target)


def framed(context: Any, callee: Any) -> Any:
    """A function in the callee's module that calls it in the default mode and returns its status as it is."""
    frame = ir.Function(callee.module, callee.function_type, f"{callee.name}.framed")
    frame.linkage = "internal"
    frame.attributes.add("noinline")
    v = VectorBuilder(context, ir.IRBuilder(frame.append_basic_block("entry")))
    old = enter(v)
    status = v.b.call(callee, frame.args, attrs=("noinline",))
    leave(v, old)
    v.b.ret(status)
    return frame


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def call_in_default_mode(typing, function, arguments):
    """function(*arguments) of a kernel, in the default mode; for other people's compiled functions."""
    signature = typing.resolve_function_type(function, tuple(arguments), {})
    compiled = code_of(function.dispatcher, signature.args)

    def codegen(context, builder, sig, args):
        context.add_linking_libs([compiled.library])
        callee = context.declare_function(builder.module, compiled.fndesc)
        values = [
            context.cast(builder, value, given, wanted)
            for value, given, wanted in zip(
                cgutils.unpack_tuple(builder, args[1]), arguments, signature.args, strict=True
            )
        ]
        v = VectorBuilder(context, builder)
        old = enter(v)
        status, value = context.call_conv.call_function(
            builder, callee, signature.return_type, signature.args, values, attrs=("noinline",)
        )
        leave(v, old)
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return value

    return signature.return_type(function, arguments), codegen


KEEP, DEFAULT = -1, -2  # for `switched`, in place of a word


def switched(v: VectorBuilder, word: Any) -> Any:
    """Emit: the thread's control word (i64) before it became `word`, for which a number that stands for one may do."""
    b, register = v.b, register_of(v.b)
    if register is None:
        return v.int(0)
    old = _read(v, register)
    with b.if_then(b.icmp_signed("!=", word, v.int(KEEP))):
        default = b.icmp_signed("==", word, v.int(DEFAULT))
        new = b.select(default, v.int(register.modes[NEAREST]), word)
        _write(v, register, b.trunc(new, I32) if register.type == I32 else new)
    return b.zext(old, I64) if register.type == I32 else old
