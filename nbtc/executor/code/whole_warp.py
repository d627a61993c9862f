"""Instructions that all 32 lanes of a warp execute together.

A block of PTX tests once that all lanes are there: what follows in the block needs neither a test nor masks.  A kernel
of attention has 650 such instructions in a few blocks; with a test of each LLVM took 14 s for it, so 4 s.
"""

from __future__ import annotations

from llvmlite import ir

from nbtc.compiler.builder import I32
from nbtc.executor.code.warp_code import unlikely
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.lanes import Lanes

# fragments are spread over all lanes, and a warp has its registers as a whole
OPCODES = ("mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "wgmma", "setmaxnreg")
ALL = ir.Constant(I32, -1)


def gather(lanes: Lanes) -> None:
    """Wait for the warp's other lanes that have not ended.

    One lane may be late where it alone waited for something, as the lane that starts copies does.
    """
    missing = lanes.b.and_(lanes.get("warp", "live"), lanes.b.not_(lanes.active))
    lanes.put("warp", "wait_address", lanes.v.int(0))
    lanes.frame.retry_unless(lanes.b.icmp_unsigned("==", missing, ir.Constant(I32, 0)))


def need(lanes: Lanes) -> None:
    """Go on with all lanes; if some are missing, leave the warp with an error."""
    b, code = lanes.b, lanes.frame.code
    goes, fails = (code.function.append_basic_block(n) for n in ("goes", "fails"))
    branch = b.cbranch(b.icmp_unsigned("!=", lanes.active, ALL), fails, goes)
    branch.set_metadata("prof", unlikely(b.module))
    b.position_at_end(fails)
    lanes.fail(ErrorKind.WHOLE_WARP, lanes.active)
    b.branch(code.done)
    b.position_at_end(goes)
    lanes.active, lanes.full = ALL, True
