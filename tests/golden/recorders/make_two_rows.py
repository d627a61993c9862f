"""Prints where a GPU reads sparse B in K-major order with the 32-byte swizzle: python make_two_rows.py, on sm_90.

From the repository's root; it needs the driver alone.  Row k of A has a one in column k, and B's bytes are first the
lower, then the upper bytes of their own addresses: D is what A chose.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path.cwd()))
from nbtc.verify.hardware.trial import Gpu
from nbtc.verify.text import ENTRY
from nbtc.wgmma import Descriptor
from tests.wgmma.test_descriptor import COLUMNS, TWO_ROWS

N, SIZE, REGISTERS = 32, 16384, 16
BODY = f""".visible .entry {ENTRY}(.param .u64 A, .param .u64 S, .param .u64 D)
{{
.reg .b64 %qa, %qs, %qd, %x, %desc; .reg .b32 %a<4>, %w<4>, %i, %s, %memory, %t, %meta, %d<{REGISTERS}>; .reg .pred %p;
.shared .align 1024 .b8 bytes[{SIZE}];
mov.u32 %t, %tid.x; mov.u32 %memory, bytes; mov.u32 %i, %t;
ld.param.u64 %qa, [A]; ld.param.u64 %qs, [S]; ld.param.u64 %qd, [D];
ld.global.b64 %desc, [%qa]; mad.wide.u32 %x, %t, 20, %qa;
{" ".join(f"ld.global.b32 %a{n}, [%x+{8 + 4 * n}];" for n in range(4))} ld.global.b32 %meta, [%x+24];
COPY: shl.b32 %s, %i, 4; cvt.u64.u32 %x, %s; add.u64 %x, %x, %qs; add.u32 %s, %s, %memory;
ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%x]; st.shared.v4.b32 [%s], {{%w0, %w1, %w2, %w3}};
add.u32 %i, %i, 128; setp.lt.u32 %p, %i, {SIZE // 16}; @%p bra COPY;
fence.proxy.async; bar.sync 0;
shr.u32 %s, %memory, 4; cvt.u64.u32 %x, %s; add.u64 %desc, %desc, %x;
{" ".join(f"mov.b32 %d{n}, 0;" for n in range(REGISTERS))}
wgmma.fence.sync.aligned;
wgmma.mma_async.sp.sync.aligned.m64n{N}k64.s32.u8.u8 {{{", ".join(f"%d{n}" for n in range(REGISTERS))}}},
{{%a0, %a1, %a2, %a3}}, %desc, %meta, 0, 1;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mad.wide.u32 %x, %t, {4 * REGISTERS}, %qd;
{" ".join(f"st.global.b32 [%x+{4 * n}], %d{n};" for n in range(REGISTERS))}
ret;
}}"""


def chosen():
    """A's registers and the metadata of each thread."""
    stored, index = np.zeros((64, 32), np.uint8), np.zeros((64, 32), int)
    index[:, 1::2] = 1
    for row in range(64):
        pair = 2 * (row // 4)
        stored[row, pair + row % 2] = 1
        index[row, pair : pair + 2] += 2 * (row % 4 // 2)
    found = np.zeros((128, 5), np.uint32)
    for t in range(128):
        row, q = 16 * (t // 32) + t % 32 // 4, t % 4
        for n in range(4):
            first = 16 * (n // 2) + 4 * q
            found[t, n] = stored[row + 8 * (n % 2), first : first + 4].view(np.uint32)[0]
        mine = index[row + 8 * (q % 2), 16 * (q // 2) :][:16]
        found[t, 4] = sum(int(x) << 2 * n for n, x in enumerate(mine))
    return found.reshape(-1)


gpu, operand, address = Gpu(), chosen(), np.arange(SIZE)
print(gpu.name, gpu.driver_version)
for start, leading, stride, base in TWO_ROWS:
    word = Descriptor(start, leading, stride, base, "32B").encode()
    given = np.concatenate([np.array([word & 0xFFFFFFFF, word >> 32], np.uint32), operand])
    found = np.zeros((N, 64), int)
    for byte in (0, 1):
        d = np.zeros((128, REGISTERS), np.uint32)
        gpu.run(BODY, 1, 128, 0, [given, (address >> 8 * byte).astype(np.uint8)], [d])
        for t, n in np.ndindex(d.shape):
            row, column = 16 * (t // 32) + t % 32 // 4 + 8 * (n // 2 % 2), 8 * (n // 4) + 2 * (t % 4) + n % 2
            found[column, row] += int(d[t, n]) << 8 * byte
    print((start, leading, stride, base), found[list(COLUMNS), ::16].tolist())
