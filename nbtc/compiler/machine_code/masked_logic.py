"""A wrong instruction of LLVM's, found in what it compiled and compiled otherwise.

With AVX-512, LLVM (20 to 22 at least) makes one instruction of a choice by a mask between a value y and bits that
another mask picks from x and y: `select(k, (x & m) | (y & ~m), y)` becomes VPTERNLOG with a write mask, and x or the
broadcast m may come straight from memory.  In two of the six orders of x, y and m it writes the truth table of another
order, so the function of three bits is a wrong one.  Where x is a sign and y a magnitude, `copysign` gives such code.

Neither an option nor another form of the operations keeps LLVM from it reliably: later passes find them again.  But
the only instructions concerned, VPTERNLOG with a memory operand and a write mask that merges, are rare (25 of 11,829
compiled programs).  So machine code is looked through, which costs nothing against compiling it; where one is found,
the same text is compiled again with what choices choose from hidden from LLVM, so that a choice is an instruction of
its own.  To hide all of them always would cost an instruction for each masked operation.
"""

from __future__ import annotations

import re

REGISTER_BITS = 512
# EVEX, Intel's manual volume 2, 2.7: 62, a byte whose low three bits are the opcode map (3 is 0F 3A), a byte whose low
# bits are 1 and the prefix (1 is 66), a byte with the write mask's register in its low three bits and zeroing in the
# top one; 25 is VPTERNLOG in that map.  Then ModRM: its top two bits are 3 where no operand is in memory.
_ENCODED = re.compile(rb"\x62(?=(...)\x25(.))", re.DOTALL)
_WRITTEN = re.compile(r"\bvpternlog[dq]\s+\$-?\d+,\s*[^%\s]*\(.*\{%k[1-7]\}(?!\s*\{z\})")
_SELECT = re.compile(r"^\s*%\S+ = select\s+(?:\w+ )*<\d+ x i1> ")
_ARM = re.compile(r'<(\d+) x (i32|i64|float|double)> (%"[^"]+"|%[\w.$-]+)(?=\s*(?:,|$))')
_BITS = {"i32": 32, "i64": 64, "float": 32, "double": 64}


def may_hold(code: bytes) -> bool:
    """Whether bytes of machine code look like an instruction of the kind; constants may look like one too."""
    for found in _ENCODED.finditer(code):
        (first, second, third), modrm = found[1], found[2][0]
        if first & 7 == 3 and second & 7 == 5 and third & 7 and not third & 0x80 and modrm >> 6 != 3:
            return True
    return False


def holds(assembly: str) -> bool:
    """Whether assembly in AT&T's syntax has an instruction of the kind."""
    return _WRITTEN.search(assembly) is not None


def with_plain_choices(text: str) -> str:
    """A module's text where LLVM sees nothing of the values that vectors of conditions choose from."""
    kinds: set[tuple[int, str]] = set()
    lines: list[str] = []
    for line in text.splitlines():
        if _SELECT.match(line):
            arms = list(_ARM.finditer(line))
            kinds |= {(int(lanes), kind) for lanes, kind, _ in (arm.groups() for arm in arms)}
            for number, arm in reversed(list(enumerate(arms))):
                hidden = f"%choice.{len(lines)}.{number}"
                lines.append(f"  {hidden} = call <{arm[1]} x {arm[2]}> @{_name(int(arm[1]), arm[2])}({arm[0]})")
                line = line[: arm.start(3)] + hidden + line[arm.end(3) :]
        lines.append(line)
    return "\n".join([*lines, *(_hide(lanes, kind) for lanes, kind in sorted(kinds))])


def _name(lanes: int, kind: str) -> str:
    return f"nbtc_hidden_{lanes}_{kind}"


def _hide(lanes: int, kind: str) -> str:
    """A function that returns its vector, register by register through an empty piece of assembly."""
    whole = f"<{lanes} x {kind}>"
    width = min(lanes, REGISTER_BITS // _BITS[kind])
    body, joined = [], "poison"
    for first in range(0, lanes, width):
        at = ", ".join(f"i32 {n}" for n in range(first, first + width))
        back = [f"i32 {lanes + n - first}" if first <= n < first + width else f"i32 {n}" for n in range(lanes)]
        spread = [f"i32 {n}" if n < width else "i32 poison" for n in range(lanes)]
        part = f"<{width} x {kind}>"
        body += [
            f"  %p{first} = shufflevector {whole} %x, {whole} poison, <{width} x i32> <{at}>",
            f'  %o{first} = call {part} asm "", "=v,0"({part} %p{first})',
            f"  %w{first} = shufflevector {part} %o{first}, {part} poison, <{lanes} x i32> <{', '.join(spread)}>",
            f"  %j{first} = shufflevector {whole} {joined}, {whole} %w{first}, <{lanes} x i32> <{', '.join(back)}>",
        ]
        joined = f"%j{first}"
    head = f"define internal {whole} @{_name(lanes, kind)}({whole} %x) alwaysinline"
    return "\n".join([f"{head} {{", *body, f"  ret {whole} {joined}", "}"])
