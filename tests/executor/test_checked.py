"""Checked mode: seeded hazards are found, the same programs without them are not reported.

The programs are bodies of one kernel in `hazards/`, a file a kind.  `//! name block=64 grid=1: report` begins one.  A
line that begins with `+` stands only in the repaired program, one that begins with `-` only in the broken one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

FOLDER = Path(__file__).parent / "hazards"
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .func (.param .b64 out) malloc (.param .b64 size);
.extern .func free (.param .b64 memory);
.visible .entry k(.param .u64 pa, .param .u64 pb)
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


class Hazard(NamedTuple):
    """A program with a hazard; `says` is what its report begins with."""

    kind: str
    name: str
    body: str
    says: str
    options: dict[str, int]

    def text(self, repaired: bool) -> str:
        mine, other = ("+", "-") if repaired else ("-", "+")
        lines = [line.strip() for line in self.body.splitlines()]
        kept = [line.removeprefix(mine) for line in lines if not line.startswith(other)]
        return HEAD.format(body="\n".join(kept))


def hazards():
    for path in sorted(FOLDER.glob("*.ptx")):
        for part in path.read_text(encoding="utf-8").split("//!")[1:]:
            head, _, body = part.partition("\n")
            about, _, says = head.partition(":")
            name, *options = about.split()
            numbers = {key: int(value) for key, value in (option.split("=") for option in options)}
            yield Hazard(path.stem, name, body, says.strip(), numbers)


def launch(hazard, repaired):
    kernel = nbtc.load(hazard.text(repaired))["k"]
    arrays = np.zeros(4096, np.int32), np.zeros(4096, np.int32)
    options = {"block": 64, "grid": 1, "cluster": None, **hazard.options}
    kernel.launch(options["grid"], options["block"], arrays, cluster=options["cluster"], checked=True, timeout=600)


@pytest.mark.parametrize("hazard", tuple(hazards()), ids=lambda h: f"{h.kind} {h.name}")
def test_hazards_are_found_and_repairs_are_not(hazard):
    with pytest.raises(ProgramError, match=re.escape(hazard.says)):
        launch(hazard, False)
    launch(hazard, True)
