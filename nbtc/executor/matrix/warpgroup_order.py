"""What the four warps of a warpgroup wait for around its products.

A product reads what any of the four warps wrote before its fence, and no warp is past a wait while another has still to
multiply: the PTX ISA has each warp execute the same products, and CuTe's tutorial for Hopper, whose warps copy with
cp.async, relies on it, having no other barrier.  So a warp
leaves a fence once all four have come to the fence before that product, and a wait once all four have issued as many
products.  Products are what the warps of a warpgroup have in common, so that is what is counted: some may execute more
fences and waits than others.  A warp that has ended is not waited for.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder
from nbtc.executor.emit.fields import field_at, load_field
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.emit.state import BLOCK, WARP

POINTER = I8.as_pointer()
WARPS = 4  # of a warpgroup
ONE = ir.Constant(I32, 1)


def issued(lanes: Lanes) -> None:
    """The warp issues a product."""
    lanes.put("warp", "products", lanes.b.add(lanes.get("warp", "products"), ONE))


def fence(lanes: Lanes) -> None:
    """wgmma.fence: go on when all warps are at the fence before the next product."""
    next_product = lanes.b.add(lanes.get("warp", "products"), ONE)
    lanes.put("warp", "fenced", next_product)
    _wait_for_peers(lanes, "fenced", next_product)


def wait(lanes: Lanes) -> None:
    """wgmma.wait_group: go on when all warps have issued the products that this one has."""
    _wait_for_peers(lanes, "products", lanes.get("warp", "products"))


def _wait_for_peers(lanes: Lanes, name: str, count: Any) -> None:
    """Stay until a count of every warp of the warpgroup is no less than this."""
    helper = lanes.helper(
        f"warpgroup_{name}", I64, (POINTER, POINTER, I32, I32), lambda v, args: _behind(v, args, name)
    )
    warps = lanes.get("launch", "warps")
    late = lanes.b.call(helper, [lanes.block, lanes.warp, warps, count])
    lanes.put("warp", "wait_address", late)
    lanes.retry_unless(lanes.b.icmp_unsigned("==", late, lanes.v.int(0)))


def _behind(v: VectorBuilder, args: Any, name: str) -> None:
    """The address of such a count of a warp that is late, which the warp is to sleep on; 0 if none is."""
    b = v.b
    block, warp, warps, count = args
    first = b.and_(load_field(v, "warp", warp, "index"), ir.Constant(I32, -WARPS))
    found, value = v.int(0), count
    for n in range(WARPS):
        index = b.add(first, ir.Constant(I32, n))
        exists = b.icmp_unsigned("<", index, warps)
        at = v.at(block, BLOCK.size, b.mul(b.zext(index, I64), v.int(WARP.size)))
        peer = b.select(exists, at, warp)
        theirs = load_field(v, "warp", peer, name)
        less = b.icmp_signed("<", b.sub(theirs, count), ir.Constant(I32, 0))  # counts may wrap around
        running = b.icmp_unsigned("==", load_field(v, "warp", peer, "ended"), ir.Constant(I32, 0))
        late = b.and_(less, running)
        address = b.ptrtoint(field_at(v, "warp", peer, name), I64)
        found, value = b.select(late, address, found), b.select(late, theirs, value)
    v.store(value, field_at(v, "warp", warp, "wait_value"), 4)
    b.ret(found)
