"""Words of the special function unit: CUDA's intrinsics, and `ptx.approx` on the words of one thread."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from nbtc.dialect import intrinsics, words
from nbtc.executor.emit.form import WIDTHS
from nbtc.executor.rows import approx_arrays
from nbtc.executor.scalar.approx import MNEMONICS
from nbtc.numba_door.constants import constant_of

REGISTERS = {"f32": ir.FloatType(), "f64": ir.DoubleType()}  # others hold bits
WORDS = {16: types.uint16, 32: types.uint32, 64: types.uint64}

for _name in intrinsics.INTRINSICS:
    words.instruction(
        f"{intrinsics.__name__}.{_name}",
        intrinsics.assembly(_name),
        types.float32,
        [types.float32] * intrinsics.operands(_name),
        "xy"[: intrinsics.operands(_name)],
        effect=False,
    )


@words.word(f"{approx_arrays.__name__}.approx")
def _approx(context: Any, mnemonic: Any, a: Any, b: Any = None, threads: Any = None) -> Any:
    text = constant_of(mnemonic)
    form = MNEMONICS.get(text) if isinstance(text, str) else None
    if form is None:
        words.refuse(f"approx: the first argument is an approximate function, in quotes; it is {mnemonic}")
    if threads is not types.none:
        words.refuse("approx: threads= is for Python; a kernel has threads of its own")
    given = [kind for kind in (a, b) if kind is not types.none]
    if len(given) != len(form.sources):
        words.refuse(f"approx: {text} takes {len(form.sources)} source operands, {len(given)} were given")
    word = WORDS[WIDTHS[form.sources[0]]]
    for kind in given:
        if not isinstance(types.unliteral(kind), types.Integer):
            words.refuse(f"approx: operands of {text} are words of {word.bitwidth} bits, integers, not {kind}")
    bits = ir.IntType(word.bitwidth)
    register = REGISTERS.get(form.sources[0], bits)

    def emit(c: Any, builder: Any, sig: Any, args: Any) -> Any:
        held = [c.cast(builder, x, kind, word) for x, kind in zip(args[1:], given, strict=False)]
        line = f"{text} $0, {', '.join(f'${n}' for n in range(1, len(given) + 1))};"
        operands = [builder.bitcast(x, register) for x in held]
        return builder.bitcast(words.inline(builder, line, [register], operands, effect=False)[0], bits)

    return signature(word, mnemonic, a, b, threads), emit
