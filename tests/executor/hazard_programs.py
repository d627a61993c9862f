"""Programs with one hazard each, and the same programs without it.

They are bodies of one kernel in `hazards/`, a file a kind.  `//! name block=64 grid=1 cluster=1: report` begins one.  A
line that begins with `+` stands only in the repaired program, one that begins with `-` only in the broken one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WORDS = 4096  # of 32 bits in each of a kernel's two arrays, zeros
FOLDER = Path(__file__).parent / "hazards"
HEAD = """.version 8.6
.target sm_90a
.address_size 64
{declared}.visible .entry k(.param .u64 pa, .param .u64 pb){directive}
{{
 .reg .pred p<9>; .reg .b16 h<9>; .reg .b32 r<99>, t, s, mine, other, next, lane, warp, block;
 .reg .b64 rd<32>, a, b, ga, d<9>; .reg .f32 f<160>;
 .shared .align 1024 .b8 mem[8192];
 ld.param.u64 a, [pa]; ld.param.u64 b, [pb]; mov.u32 t, %tid.x; mov.u32 block, %ctaid.x; mov.u32 s, mem;
 mov.u32 lane, %laneid; shr.u32 warp, t, 5; shl.b32 r0, t, 2; add.u32 mine, s, r0;
 xor.b32 r1, r0, 128; add.u32 other, s, r1; xor.b32 r1, r0, 4; add.u32 next, s, r1;
 cvt.u64.u32 rd0, r0; add.u64 ga, a, rd0;
{body}
 ret;
}}
"""


# of programs that call them: a module that declares malloc has a heap, whose 8 MiB every launch watches
HEAP = """.extern .func (.param .b64 out) malloc (.param .b64 size);
.extern .func free (.param .b64 memory);
"""


class Hazard(NamedTuple):
    """A program with a hazard; `says` is what its report begins with."""

    kind: str
    name: str
    body: str
    says: str
    options: dict[str, int]

    @property
    def grid(self) -> int:
        """Its blocks."""
        return self.options.get("grid", 1)

    @property
    def block(self) -> int:
        """Threads of each."""
        return self.options.get("block", 64)

    def text(self, repaired: bool) -> str:
        """The module; its kernel is `k`."""
        mine, other = ("+", "-") if repaired else ("-", "+")
        lines = [line.strip() for line in self.body.splitlines()]
        kept = [line.removeprefix(mine) for line in lines if not line.startswith(other)]
        blocks = self.options.get("cluster")
        directive = f" .reqnctapercluster {blocks}, 1, 1" if blocks else ""
        declared = HEAP if "malloc" in self.body else ""
        return HEAD.format(declared=declared, directive=directive, body="\n".join(kept))


def hazards() -> Iterator[Hazard]:
    """All of them, kind by kind."""
    for path in sorted(FOLDER.glob("*.ptx")):
        for part in path.read_text(encoding="utf-8").split("//!")[1:]:
            head, _, body = part.partition("\n")
            about, _, says = head.partition(":")
            name, *options = about.split()
            numbers = {key: int(value) for key, value in (option.split("=") for option in options)}
            yield Hazard(path.stem, name, body, says.strip(), numbers)
