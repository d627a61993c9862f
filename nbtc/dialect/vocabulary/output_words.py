"""`print`: formatted on the device's side of `vprintf`, as C does (CUDA C++ Programming Guide, "Formatted Output").

Items stand side by side with a space between: integers in decimal, floats as `%f`, bool as 0 or 1, constant texts as
they are.  A launch's output appears when it ends; lines of one thread keep their order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from nbtc.dialect import assertions, target, words

I32, I64, DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()


def _item(context: Any, builder: Any, kind: Any, value: Any) -> tuple[str, list[Any]]:
    """C's format of an item and the values that it shows."""
    if isinstance(kind, types.StringLiteral):
        return kind.literal_value.replace("%", "%%"), []
    plain = types.unliteral(kind)
    if isinstance(plain, types.Boolean):
        return "%d", [builder.zext(context.cast(builder, value, kind, types.boolean), I32)]
    if isinstance(plain, types.Integer):
        wide = types.int64 if plain.signed else types.uint64
        return "%lld" if plain.signed else "%llu", [context.cast(builder, value, kind, wide)]
    if isinstance(plain, types.Float):
        return "%f", [context.cast(builder, value, kind, types.float64)]
    if isinstance(plain, types.BaseTuple):
        parts = [
            _item(context, builder, k, v)
            for k, v in zip(plain, cgutils.unpack_tuple(builder, value, len(plain)), strict=True)
        ]
        return f"({', '.join(text for text, _ in parts)})", [v for _, values in parts for v in values]
    words.refuse(f"print shows numbers, tuples of them and constant texts, not {kind}")


@target.lowering_registry.lower(print, types.VarArg(types.Any))
def _print(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    items = [_item(context, builder, kind, value) for kind, value in zip(sig.args, args, strict=True)]
    values = [v for _, shown in items for v in shown]
    buffer = cgutils.alloca_once(builder, ir.LiteralStructType([v.type for v in values])) if values else None
    for n, value in enumerate(values):
        builder.store(value, cgutils.gep_inbounds(builder, buffer, 0, n))
    callee = assertions.declared(builder.module, "vprintf", I32, [assertions.POINTER, assertions.POINTER])
    line = assertions.text(builder, " ".join(text for text, _ in items) + "\n")
    place = builder.bitcast(buffer, assertions.POINTER) if buffer is not None else assertions.POINTER(None)
    builder.call(callee, [line, place])
    return context.get_dummy_value()
