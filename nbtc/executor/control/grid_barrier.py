"""The barrier of a whole grid, as functions of PTX that cooperative groups call: what libcudadevrt.a has for a linker.

(CUDA C++ Programming Guide, "Grid Synchronization".)  Threads meet in their block, and one of each block counts it in:
the word's top bit turns over when all blocks have arrived.
"""

GRID_BARRIER = """
.visible .global .align 4 .u32 nbtc_grid_arrivals;
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    st.param.b64 [handle], 1;
    ret;
}
.visible .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .b32 x, y, z, step, before, now;
    .reg .pred p, q;
    bar.sync 0;
    mov.u32 x, %tid.x;
    mov.u32 y, %tid.y;
    mov.u32 z, %tid.z;
    or.b32 x, x, y;
    or.b32 x, x, z;
    setp.ne.u32 p, x, 0;
    @p bra MEET;
    mov.u32 x, %nctaid.x;
    mov.u32 y, %nctaid.y;
    mul.lo.u32 x, x, y;
    mov.u32 y, %nctaid.z;
    mul.lo.u32 z, x, y;
    mov.u32 x, %ctaid.x;
    mov.u32 y, %ctaid.y;
    or.b32 x, x, y;
    mov.u32 y, %ctaid.z;
    or.b32 x, x, y;
    setp.eq.u32 q, x, 0;
    sub.u32 z, 0x80000001, z;
    selp.u32 step, z, 1, q;
    membar.gl;
    atom.global.add.u32 before, [nbtc_grid_arrivals], step;
WAIT:
    ld.volatile.global.u32 now, [nbtc_grid_arrivals];
    xor.b32 now, now, before;
    setp.ge.s32 p, now, 0;
    @p bra WAIT;
    membar.gl;
MEET:
    bar.sync 0;
    st.param.b32 [result], 0;
    ret;
}
"""
