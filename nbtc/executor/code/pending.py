"""Which blocks of a warp's code lanes are pending at: a bit each, and the lowest of them.

Large programs have thousands of such blocks.  One integer of as many bits would be taken apart into words wherever
lanes go on, which makes machine code that grows with the square of the program.  So the words are in memory, each place
changes the one that holds its block's bit, and what lanes ask nearly always, whether anybody is pending at a block or
before it, is a comparison with the lowest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, VectorBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

BITS = 64  # of a word
ZERO = ir.Constant(I32, 0)


class Pending:
    """The set of `count` blocks; `variable(type, first)` makes a variable of the whole function."""

    def __init__(self, v: VectorBuilder, count: int, variable: Callable[..., Any], helper: Callable[..., Any]) -> None:
        self.v, self.b, self._helper = v, v.b, helper
        self.count = count // BITS + 1  # one bit more than blocks, so that there is one after each of them
        self.none = ir.Constant(I32, self.count * BITS)  # the lowest of an empty set
        self.words = variable(ir.ArrayType(I64, self.count))
        self.lowest = variable(I32, self.count * BITS)

    def add(self, bit: Any) -> None:
        """Lanes are pending at a block (i32)."""
        b = self.b
        word, one = self._place(bit)
        b.store(b.or_(b.load(word), one), word)
        lowest = b.load(self.lowest)
        b.store(b.select(b.icmp_unsigned("<", bit, lowest), bit, lowest), self.lowest)

    def some_up_to(self, bit: int) -> Any:
        """i1: whether lanes are pending at a block or before it."""
        return self.b.icmp_unsigned("<=", self.b.load(self.lowest), ir.Constant(I32, bit))

    def empty(self) -> Any:
        """i1: whether no lanes are pending."""
        return self.b.icmp_unsigned("==", self.b.load(self.lowest), self.none)

    def exists(self, found: Any) -> Any:
        """i1: whether `above` or `lowest` found a block."""
        return self.b.icmp_unsigned("!=", found, self.none)

    def above(self, bit: Any) -> Any:
        """The next block after a block (i32) where lanes are pending, `none` if there is none (i32)."""
        return self._next(self.b.add(bit, ir.Constant(I32, 1)))

    def take(self, index: Any) -> None:
        """No lanes are pending at a block (i32) any longer."""
        b = self.b
        word, one = self._place(index)
        b.store(b.and_(b.load(word), b.not_(one)), word)
        lowest = b.load(self.lowest)
        with b.if_then(b.icmp_unsigned("==", lowest, index)):
            b.store(self._next(index), self.lowest)

    def _place(self, index: Any) -> tuple[Any, Any]:
        """A block's word, and its bit in it."""
        b = self.b
        if isinstance(index, ir.Constant):
            word, bit = divmod(index.constant, BITS)
            return b.gep(self.words, [ZERO, ir.Constant(I32, word)]), ir.Constant(I64, 1 << bit)
        word = b.gep(self.words, [ZERO, b.lshr(index, ir.Constant(I32, 6)) if self.count > 1 else ZERO])
        return word, b.shl(ir.Constant(I64, 1), b.zext(b.and_(index, ir.Constant(I32, BITS - 1)), I64))

    def _next(self, start: Any) -> Any:
        """The first block from `start` on (below 64 times the words) where lanes are pending."""
        if self.count == 1:
            return _first(self.v, self.b.load(self.b.gep(self.words, [ZERO, ZERO])), start)
        name, kind = f"next_pending_{self.count}", self.words.type
        helper = self._helper(name, I32, (kind, I32), self._search)
        return self.b.call(helper, [self.words, start])

    def _search(self, v: VectorBuilder, args: Any) -> None:
        b = v.b
        words, start = args
        begin = b.lshr(start, ir.Constant(I32, 6))
        at = _first(v, b.load(b.gep(words, [ZERO, begin])), b.and_(start, ir.Constant(I32, BITS - 1)))
        before = b.block
        head, look, found = (b.append_basic_block(n) for n in ("head", "look", "found"))
        b.branch(head)
        b.position_at_end(head)
        word, bit = b.phi(I32), b.phi(I32)
        word.add_incoming(begin, before)
        bit.add_incoming(at, before)
        following = b.add(word, ir.Constant(I32, 1))
        here = b.icmp_unsigned("!=", bit, ir.Constant(I32, BITS))
        over = b.icmp_unsigned("==", following, ir.Constant(I32, self.count))
        b.cbranch(b.or_(here, over), found, look)
        b.position_at_end(look)
        word.add_incoming(following, look)
        bit.add_incoming(_first(v, b.load(b.gep(words, [ZERO, following])), ZERO), look)
        b.branch(head)
        b.position_at_end(found)
        b.ret(b.add(b.shl(word, ir.Constant(I32, 6)), bit))


def _first(v: VectorBuilder, word: Any, start: Any) -> Any:
    """The first bit of a word from `start` on (below 64), 64 if there is none (i32)."""
    b = v.b
    kept = b.and_(word, b.shl(ir.Constant(I64, -1), b.zext(start, I64)))
    return b.trunc(v.call("llvm.cttz.i64", I64, kept, ir.Constant(I1, 0)), I32)
