"""Code that runs in the mode that rounds down: a function of its own, so that no other code meets that mode.

An instruction that names its rounding exists with AVX-512 alone, and takes no operand from memory.  The mode is set
once for thousands of multiply-adds instead.  What must round otherwise in there says so itself: a magnitude rounded
down is rounded toward zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import LINE, VectorBuilder
from nbtc.compiler.cpu.float_mode import DOWN, enter, leave
from nbtc.compiler.library import EMITTED, emitted_function

Named = dict[str, Any]  # values by name


def rounding_down(
    v: VectorBuilder, name: str, args: Named, emit: Callable[[VectorBuilder, Named], None], mode: str = DOWN
) -> None:
    """Call the function `name` with args; `emit` writes its body (once a module), in which sums round down.

    mode: it may also be the one that rounds toward zero, if all sums are positive.

    Never inlined: LLVM takes arithmetic to be free of modes, and would move it out of the region.
    """
    module = v.b.module
    function = module.globals.get(EMITTED + name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in args.values()])
        function = emitted_function(module, kind, name)
        function.attributes.alignstack = LINE  # for vectors that are spilled, which LLVM stores wherever the stack ends
        inner = VectorBuilder(v.context, ir.IRBuilder(function.append_basic_block("entry")), v.target)
        old = enter(inner, mode)
        emit(inner, dict(zip(args, function.args, strict=True)))
        leave(inner, old)
        inner.b.ret_void()
    v.b.call(function, list(args.values()))
