"""Products in one native call, of which only the operands' and the result's addresses are new.

What drives them is told everything else by words in memory that were written once.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import F64, I8, I16, I32, I64, VectorBuilder, vector
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.machine_code.emitted import Named, call_in_words, from_words, in_words, machine_code
from nbtc.kernels.panels.panel_drivers import BlockArguments
from nbtc.kernels.words.words import ProductArguments

# What a call may give: the result stands; sums could leave 32 bits, and nothing is summed; outputs are not vouched
# for; an operand's elements are out of the range that the words were written for.
UNFIT, DONE, MARKED, OUTSIDE = range(4)
BYTES, LEVEL = 32, 2  # of a vector of elements; of LLVM's pipelines: a flag in memory takes as long as the elements


class Operands(NamedTuple):
    """What is new at each call: arguments as `Words`, a, b and the result."""

    words: Any
    a: Any
    b: Any
    d: Any


class Magnitudes(NamedTuple):
    """Those that finite elements of an operand other than 0 may have: least to greatest.

    number: of elements that must be looked at, of `size` bytes.  kept: a magnitude's bits.  special: the first
    magnitude of no number.
    """

    number: int
    size: int
    kept: int
    special: int
    least: int
    greatest: int


ANY_MAGNITUDES = Magnitudes(0, 2, 0, 0, 0, 0)


class FusedArguments(NamedTuple):
    """Of a fused product that the function at `driver` computes; marks: bytes of its marks, which lie together."""

    driver: int
    block: BlockArguments
    marks: int
    left: Magnitudes
    right: Magnitudes


class WordsArguments(NamedTuple):
    """Of a product of words that the function at `driver` computes; doubles: results that must not be NaN."""

    driver: int
    product: ProductArguments
    doubles: int


class Repeated(NamedTuple):
    """Addresses of functions of `Operands`."""

    fused: int
    words: int


@cache
def repeated() -> Repeated:
    """Those of all forms."""
    functions = {name: in_words(Operands, body) for name, body in (("fused", _fused), ("words", _words))}
    loaded = machine_code(functions, source_digest(Path(__file__).resolve()), "repeated", level=LEVEL)
    return Repeated(*(loaded.address(name) for name in Repeated._fields))


def _fused(v: VectorBuilder, given: Named) -> Any:
    """Of `FusedArguments`."""
    b, x = v.b, from_words(v, given["words"], FusedArguments)
    result = cgutils.alloca_once_value(b, v.int(OUTSIDE))
    outside = _outside(v, given["a"], x["left"]), _outside(v, given["b"], x["right"])
    with b.if_then(b.not_(b.or_(*outside))):
        block = x["block"]
        block |= {"left": block["left"] | {"x": given["a"]}, "right": block["right"] | {"x": given["b"]}}
        block |= {"state": block["state"] | {"x": given["d"]}}
        b.store(call_in_words(v, x["driver"], BlockArguments, block), result)
        tiles = block["marks"]["tiles"]
        with b.if_then(
            _any(v, tiles, x["marks"], I8, lambda marks: b.icmp_signed("!=", marks, v.const(marks.type, 0)))
        ):
            b.store(v.int(MARKED), result)
            cgutils.memset(b, tiles, x["marks"], 0)
    return b.load(result)


def _words(v: VectorBuilder, given: Named) -> Any:
    """Of `WordsArguments`."""
    b, x = v.b, from_words(v, given["words"], WordsArguments)
    product = x["product"]
    columns, rows = product["columns"], product["rows"]
    columns |= {"b": columns["b"] | {"x": given["b"]}}
    rows |= {"a": rows["a"] | {"x": given["a"]}, "d": rows["d"] | {"x": given["d"]}}
    call_in_words(v, x["driver"], ProductArguments, product | {"columns": columns, "rows": rows})
    nan = _any(v, given["d"], x["doubles"], F64, lambda d: b.fcmp_unordered("uno", d, d))
    return b.select(nan, v.int(MARKED), v.int(DONE))


def _outside(v: VectorBuilder, p: Any, m: Named) -> Any:
    """Whether an element of an operand is neither 0 nor no number nor in the range."""
    b, outside = v.b, []
    for word in (I16, I32):
        mine = b.icmp_signed("==", m["size"], v.int(word.width // 8))
        kept, special, least, greatest = (b.trunc(m[n], word) for n in ("kept", "special", "least", "greatest"))
        limits = kept, special, least, b.sub(greatest, least)

        def wrong(x: Any, limits: Any = limits) -> Any:
            kept, special, least, spread = (v.splat(y, x.type.count) for y in limits)
            size = b.and_(x, kept)
            finite = b.and_(b.icmp_unsigned("<", size, special), b.icmp_unsigned("!=", size, v.const(size.type, 0)))
            return b.and_(finite, b.icmp_unsigned(">", b.sub(size, least), spread))

        outside.append(_any(v, p, b.select(mine, m["number"], v.int(0)), word, wrong))
    return b.or_(*outside)


def _any(v: VectorBuilder, p: Any, count: Any, element: ir.Type, asked: Any) -> Any:
    """Whether one of so many elements from p on is as asked."""
    b, size = v.b, 8 if element == F64 else element.width // 8
    found = cgutils.alloca_once_value(b, ir.Constant(ir.IntType(1), 0))
    most = BYTES // size
    whole = b.and_(count, v.int(-most))
    for begin, end, n in ((v.int(0), whole, most), (whole, count, 1)):
        with cgutils.for_range_slice(b, begin, end, v.int(n), I64) as (i, _):
            mask = asked(v.load(v.at(p, b.mul(i, v.int(size))), vector(element, n)))
            here = v.call(f"llvm.vector.reduce.or.v{n}i1", ir.IntType(1), mask)
            b.store(b.or_(b.load(found), here), found)
    return b.load(found)
