"""Stores of a warp whose lanes share addresses."""

SIZES = {1: "b8", 2: "b16", 4: "b32", 8: "b64", 16: "v4.b32"}  # bytes of a lane
SLOTS = 32  # places a pattern

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 slots, .param .u64 out) {{
    .reg .b64 %slots, %out, %first, %a, %b, %w;
    .reg .b32 %lane, %i, %v, %s;
    .reg .b16 %h;
    .reg .pred %stores, %more;
    .shared .align 16 .b8 words[512];
    ld.param.u64 %slots, [slots];
    ld.param.u64 %out, [out];
    mov.u32 %lane, %tid.x;
    mov.u32 %i, %ctaid.x;
    mul.wide.u32 %a, %i, 128;
    add.u64 %slots, %slots, %a;
    mul.wide.u32 %a, %i, 512;
    add.u64 %out, %out, %a;
    mov.u64 %first, {memory};
    mul.wide.u32 %a, %lane, 16;
    add.u64 %a, %first, %a;
    mov.u32 %v, 0xffffffff;
    st.{space}.v4.b32 [%a], {{%v, %v, %v, %v}};
    bar.sync 0;
    mul.wide.u32 %a, %lane, 4;
    add.u64 %a, %slots, %a;
    ld.global.b32 %s, [%a];
    setp.ge.s32 %stores, %s, 0;
    mul.lo.u32 %s, %s, {size};
    cvt.u64.u32 %a, %s;
    add.u64 %a, %first, %a;
    mov.u32 %v, %lane;
    cvt.u16.u32 %h, %v;
    mov.b64 %w, {{%v, %v}};
    @%stores st.{space}.{type} [%a], {value};
    bar.sync 0;
    mul.wide.u32 %a, %lane, 16;
    add.u64 %b, %out, %a;
    add.u64 %a, %first, %a;
    ld.{space}.b32 %s, [%a];
    st.global.b32 [%b], %s;
    ld.{space}.b32 %s, [%a + 4];
    st.global.b32 [%b + 4], %s;
    ld.{space}.b32 %s, [%a + 8];
    st.global.b32 [%b + 8], %s;
    ld.{space}.b32 %s, [%a + 12];
    st.global.b32 [%b + 12], %s;
    ret;
}}
"""
VALUES = {1: "%v", 2: "%h", 4: "%v", 8: "%w", 16: "{%v, %v, %v, %v}"}


def text(space, size):
    """Each lane stores its number, in its first byte, to its slot; a block a pattern, 512 bytes of results each."""
    memory = "%out" if space == "global" else "words"
    return TEXT.format(space=space, size=size, memory=memory, type=SIZES[size], value=VALUES[size])


def winners(out, size):
    """Which lane's number is in each slot [pattern][slot], 255 for none."""
    return out.reshape(-1, 512)[:, : SLOTS * size : size]
