"""What LLVM's back end for PTX can select: anything else would end the process, so it is refused before."""

from __future__ import annotations

import re
from typing import Any

from nbtc.errors import KernelError

# Intrinsics that LLVM 20 and 22 make PTX of, by the first words of their names: 160 forms on f16, f32, f64 and 8 to 64
# bits were tried, each in a process of its own; `canonicalize` ends it under LLVM 20.
SELECTABLE = tuple(
    f"llvm.{name}"
    for name in (
        "nvvm.", "sqrt.", "fma.", "fmuladd.", "fabs.", "floor.", "ceil.", "trunc.", "rint.", "nearbyint.", "round.",
        "roundeven.", "copysign.", "minnum.", "maxnum.", "minimum.", "maximum.", "is.fpclass.",
        "smax.", "smin.", "umax.", "umin.", "abs.", "ctpop.", "ctlz.", "cttz.", "bswap.", "bitreverse.", "fshl.",
        "fshr.", "scmp.", "ucmp.", "uadd.", "usub.", "umul.", "sadd.", "ssub.", "smul.", "memset.", "memcpy.",
        "memmove.", "lifetime.", "assume", "expect", "experimental.noalias", "dbg.", "stacksave", "stackrestore",
        "vector.reduce.", "trap", "ubsantrap", "donothing", "invariant.", "launder.", "strip.", "ptrmask", "sideeffect",
    )
)  # fmt: skip
# Functions without a body that CUDA's driver and the executor provide.
PROVIDED = ("__assertfail", "vprintf", "malloc", "free")


def check(module: Any) -> None:
    """Raise for functions that the back end, or a launch, would not find."""
    for function in module.functions:
        if not function.is_declaration or function.name in PROVIDED or function.name.startswith(SELECTABLE):
            continue
        raise KernelError(f"{_said(function.name)} has no device code{_where(str(module), function.name)}")


def _said(name: str) -> str:
    if name.startswith("NRT_"):
        return "memory allocation (np.empty, np.zeros, lists, strings)"
    return f"the function {name!r}"


def _where(text: str, name: str) -> str:
    """The line of the first call, by the debug information."""
    call = re.search(rf'call [^\n]*@"?{re.escape(name)}"?\([^\n]*!dbg !(\d+)', text)
    line = call and re.search(rf"^!{call.group(1)} = !DILocation\(line: (\d+)", text, re.MULTILINE)
    return f", line {line.group(1)}" if line else ""
