"""A large function apart from the rest of its module, so that LLVM may take less time for it alone.

LLVM's allocation of registers takes more than linear time in a function's blocks: a warp of 2,800 blocks took 42 s of
a processor, against 3 s without optimisation, which keeps values between blocks in memory.  What such a warp calls
for its products is in functions of its own, and those stay optimised.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Basic blocks of a function, and how far LLVM then optimises its text; its machine code not at all.  The largest of the
# 160 recorded programs has 830 blocks, CUTLASS's warp-specialised products have some 2,000 to 3,500: those took 21 s.
# Its stream-K product has 7,100: LLVM's passes took 43 s, without optimisation 2 s.
MANY_BLOCKS, MOST_BLOCKS = 1000, 5000


class Part(NamedTuple):
    """A module's text, and how far LLVM optimises it: what it does to the text, and to machine code."""

    text: str
    level: int = 2
    code_level: int = 2


def parts(module: Any, name: str) -> tuple[Part, ...]:
    """The parts that an `llvmlite.ir` module is to be compiled in; `name` is the function that may be large."""
    large = module.globals[name]
    if len(large.blocks) < MANY_BLOCKS:
        return (Part(str(module)),)
    head = f'target triple = "{module.triple}"\ntarget datalayout = "{module.data_layout}"\n'
    functions = [f for f in module.globals.values() if hasattr(f, "blocks")]
    own = [f for f in functions if f.blocks]
    shared = [str(v) for v in module.globals.values() if not hasattr(v, "blocks")]
    shared += [str(x) for x in (*(f for f in functions if not f.blocks), *module.metadata)]
    alone = [_defined(large), *(_declared(f) for f in own if f is not large)]
    rest = [_declared(large), *(_defined(f) for f in own if f is not large)]
    return (
        Part(head + "\n".join([*shared, *alone]), level=int(len(large.blocks) < MOST_BLOCKS), code_level=0),
        Part(head + "\n".join([*shared, *rest])),
    )


def _defined(function: Any) -> str:
    """A function that another part may call."""
    return str(function).replace("define internal ", "define ", 1)


def _declared(function: Any) -> str:
    """A function of another part."""
    arguments = ", ".join(str(a.type) for a in function.args)
    return f'declare {function.return_value.type} @"{function.name}"({arguments}) nounwind'
