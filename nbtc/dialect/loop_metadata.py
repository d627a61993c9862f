"""Back edges of loops that are unrolled whole: what steps their counters, and LLVM's metadata that asks for it.

(LLVM Language Reference, "llvm.loop.unroll.full".)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir


class Loop(NamedTuple):
    """A loop to unroll whole: the block that tests for its end; counters in memory, what is added on the way back."""

    test: ir.Block
    counters: list[tuple[Any, int]]


unrolled: list[Loop] = []  # in modules that are still written


def close(module: ir.Module) -> None:
    """Steps and metadata on the back edges of loops that are to be unrolled: jumps back to their headers."""
    for loop in [x for x in unrolled if x.test.parent.module is module]:
        unrolled.remove(loop)
        name = module.add_metadata([f"{loop.test.parent.name} {loop.test.name}"])
        node = module.add_metadata([name, module.add_metadata(["llvm.loop.unroll.full"])])
        node.operands = (node, node.operands[1])  # a loop is known by a node that names itself
        for block in _ends(loop.test):
            builder = ir.IRBuilder(block)
            builder.position_before(block.terminator)
            for place, step in loop.counters:
                count = builder.load(place)
                builder.store(builder.add(count, ir.Constant(count.type, step)), place)
            block.terminator.set_metadata("llvm.loop", node)


def _ends(test: ir.Block) -> list[ir.Block]:
    """The blocks that jump back to a loop that tests for its end in a block: all of them are reached through it."""
    blocks = test.parent.blocks
    outside, todo = {test}, [blocks[0]]
    while todo:
        block = todo.pop()
        if block not in outside:
            outside.add(block)
            todo += _next(block)
    header, before = test, [b for b in blocks if test in _next(b)]
    while len(before) == 1 and len(_next(before[0])) == 1:  # a header may be several blocks in a row
        header = before[0]
        before = [b for b in blocks if header in _next(b)]
    return [b for b in before if b not in outside or b is test]


def _next(block: ir.Block) -> list[ir.Block]:
    operands = block.terminator.operands if block.terminator is not None else ()
    return [x for x in operands if isinstance(x, ir.Block)]
