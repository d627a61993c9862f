"""Kernels that launch kernels, as compilers write it: a buffer for the parameters, then a launch with it."""

from __future__ import annotations

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

HEAD = """.version 8.0 .target sm_80 .address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2
 (.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2 (.param .b64 p, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2StreamCreateWithFlags (.param .b64 p, .param .b32 f);
.extern .func (.param .b32 r) __cudaCDP2Malloc (.param .b64 p, .param .b64 n);
.extern .func (.param .b32 r) __cudaCDP2Free (.param .b64 p);
.extern .func (.param .b32 r) __cudaCDP2MemsetAsync (.param .b64 p, .param .b32 v, .param .b64 n, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2MemcpyAsync
 (.param .b64 p, .param .b64 q, .param .b64 n, .param .b32 k, .param .b64 s);
.extern .func (.param .b64 r) __cudaCDP2GetErrorString (.param .b32 e);
.extern .func (.param .b32 r) __cudaCDP2Memset2DAsync (.param .b64 p);
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);
.global .b8 format[5] = {60, 37, 115, 62, 0};
"""
CALL = "call (status), __cudaCDP2"


def launch(kernel, stores, grid=(1, 1, 1), block=(32, 1, 1), shared=0, stream=0):
    """A launch in PTX, whose `stores` write the parameters at %buf; status in %st."""
    at = ("+0", "+4", "+8")
    extents = "".join(
        f".param .align 4 .b8 {name}[12];"
        + "".join(f"st.param.b32 [{name}{o}], {n};" for o, n in zip(at, sizes, strict=True))
        for name, sizes in (("g", grid), ("b", block))
    )
    return f"""{{ .param .b64 f; mov.u64 %f, {kernel}; st.param.b64 [f], %f; {extents}
.param .b32 s; st.param.b32 [s], {shared}; .param .b64 r;
call (r), __cudaCDP2GetParameterBufferV2, (f, g, b, s); ld.param.b64 %buf, [r]; }}
{stores}
{{ .param .b64 p; st.param.b64 [p], %buf; .param .b64 s; st.param.b64 [s], {stream};
.param .b32 status; {CALL}LaunchDeviceV2, (p, s); ld.param.b32 %st, [status]; }}"""


def transfer(to, origin, size, stream=0):
    """A copy, or a fill with 0x15."""
    stores = f"st.param.b64 [n], {size}; st.param.b64 [p], {to}; st.param.b64 [s], {stream};"
    head = f"{{ .param .b64 p; .param .b64 q; .param .b64 n; .param .b32 k; .param .b64 s; .param .b32 status; {stores}"
    if origin is None:
        return f"{head} st.param.b32 [k], 0xabcdef15; {CALL}MemsetAsync, (p, k, n, s); ld.param.b32 %st, [status]; }}"
    return f"""{head} st.param.b64 [q], {origin}; st.param.b32 [k], 3; {CALL}MemcpyAsync, (p, q, n, k, s);
ld.param.b32 %st, [status]; }}"""


REGISTERS = ".reg .b64 %f, %buf, %x, %y; .reg .b32 %st, %t, %u, %v, %c; .reg .pred %p;"
# appends its number and the launch's index to a list
NOTE = f""".visible .entry note(.param .u64 out, .param .u32 number) {{ {REGISTERS}
ld.param.u64 %x, [out]; ld.param.u32 %u, [number]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p ret;
atom.add.u32 %c, [%x], 1; mad.wide.u32 %x, %c, 4, %x; st.u32 [%x+4], %u; ret; }}
"""


def notes(out="%x"):
    return f"st.u64 [%buf], {out}; st.u32 [%buf+8], %u;"


def first_thread(body):
    return f""".visible .entry parent(.param .u64 out) {{ {REGISTERS}
ld.param.u64 %x, [out]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p ret; {body} ret; }}"""


def test_a_child_has_its_parameters_and_extents():
    child = f""".extern .shared .b32 dyn[];
.visible .entry child(.param .u8 a, .param .f64 b, .param .u64 out) {{ {REGISTERS} .reg .f64 d; .reg .b16 h;
ld.param.u64 %x, [out]; ld.param.f64 d, [b]; ld.param.u8 h, [a]; cvt.u32.u16 %u, h; cvt.rzi.u32.f64 %v, d;
mov.u32 %t, %ctaid.z; mad.lo.u32 %u, %t, 100, %u; mov.u32 %t, %tid.y; mad.lo.u32 %u, %t, 1000, %u;
mov.u32 %c, %dynamic_smem_size; mad.lo.u32 %u, %c, 100000, %u;
mov.u32 %c, %ntid.y; mov.u32 %st, %ctaid.z; mad.lo.u32 %c, %st, %c, %t; add.u32 %c, %c, %v; mul.wide.u32 %y, %c, 4;
add.u64 %x, %x, %y; st.u32 [%x], %u; ret; }}
"""
    stores = "mov.u32 %u, 7; st.u8 [%buf], %u; st.f64 [%buf+8], 0d4000000000000000; st.u64 [%buf+16], %x;"
    text = HEAD + child + first_thread(launch("child", stores, (1, 1, 3), (1, 2, 1), 64) + " st.u32 [%x], %st;")
    out = np.full(9, 99, np.uint32)
    nbtc.load(text)["parent"][1, 32](out)
    base = 6_400_007
    assert out.tolist() == [0, 99, *(base + 1000 * y + 100 * z for z in range(3) for y in range(2)), 99]


def test_children_run_after_their_parent_in_the_order_of_their_launches():
    # middle launches 5 before the next child of parent may begin; what the tail's stream has comes last
    middle = f""".visible .entry middle(.param .u64 out) {{ {REGISTERS} ld.param.u64 %x, [out];
mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p ret; mov.u32 %u, 5; {launch("note", notes())}
atom.add.u32 %c, [%x], 1; mad.wide.u32 %x, %c, 4, %x; st.u32 [%x+4], 4; ret; }}
"""
    body = (
        f"mov.u32 %u, 9; {launch('note', notes(), stream=3)} mov.u32 %u, 2; {launch('note', notes())}"
        f"{launch('middle', 'st.u64 [%buf], %x;')} mov.u32 %u, 6; {launch('note', notes(), stream=16)}"
        "atom.add.u32 %c, [%x], 1; mad.wide.u32 %x, %c, 4, %x; st.u32 [%x+4], 1;"
    )
    out = np.zeros(8, np.uint32)
    nbtc.load(HEAD + NOTE + middle + first_thread(body))["parent"][1, 32](out)
    assert out.tolist() == [6, 1, 2, 4, 5, 6, 9, 0]


@pytest.mark.parametrize("checked", [False, True])
def test_every_thread_launches_one(checked):
    every = f""".visible .entry parent(.param .u64 out) {{ {REGISTERS} ld.param.u64 %x, [out]; mov.u32 %u, %tid.x;
{launch("note", notes())} ret; }}"""
    out = np.zeros(1 + 4 * 64, np.uint32)
    nbtc.load(HEAD + NOTE + every)["parent"].launch(4, 64, [out], checked=checked)
    assert out[0] == 256 and sorted(out[1:].tolist()) == sorted(4 * list(range(64)))


def test_the_devices_memory_and_streams():
    body = f"""{{ .local .align 8 .b64 held[2]; mov.u64 %y, held; cvta.local.u64 %y, %y;
{{ .param .b64 p; st.param.b64 [p], %y; .param .b32 f; st.param.b32 [f], 1; .param .b32 status;
{CALL}StreamCreateWithFlags, (p, f); ld.param.b32 %st, [status]; }} st.u32 [%x], %st; add.u64 %y, %y, 8;
{{ .param .b64 p; st.param.b64 [p], %y; .param .b64 n; st.param.b64 [n], 4; .param .b32 status;
{CALL}Malloc, (p, n); ld.param.b32 %st, [status]; }} st.u32 [%x+4], %st; ld.u64 %y, [%y];
st.u32 [%y], 77; ld.u32 %v, [%y]; st.u32 [%x+8], %v;
{{ .param .b64 p; st.param.b64 [p], %y; .param .b32 status; {CALL}Free, (p); ld.param.b32 %st, [status]; }} }}"""
    out = np.full(3, 9, np.uint32)
    nbtc.load(HEAD + first_thread(body))["parent"].launch(1, 32, [out], checked=True)
    assert out.tolist() == [0, 0, 77]


def test_copies_and_fills_have_their_turn():
    body = f"""add.u64 %y, %x, 16; {transfer("%y", "%x", 8, stream=3)} mov.u32 %u, 3; {launch("note", notes())}
{transfer("%y", None, 12)} st.u32 [%x+4], 6;"""
    out = np.zeros(8, np.uint32)
    nbtc.load(HEAD + NOTE + first_thread(body))["parent"][1, 32](out)
    assert out.tolist() == [1, 3, 0, 0, 1, 3, 0x15151515, 0]


def test_texts_of_errors_are_there_to_print(capsys):
    texts = "".join(
        f"""{{ .param .b32 e; st.param.b32 [e], {code}; .param .b64 r; call (r), __cudaCDP2GetErrorString, (e);
ld.param.b64 %y, [r]; st.local.u64 [held], %y; .param .b64 f; .param .b64 v; mov.u64 %f, format; cvta.global.u64 %f, %f;
st.param.b64 [f], %f; cvta.local.u64 %y, %c0; st.param.b64 [v], %y; .param .b32 n; call (n), vprintf, (f, v); }}"""
        for code in (0, 2, 77)
    )
    body = f".local .align 8 .b64 held; .reg .b64 %c0; mov.u64 %c0, held; {texts}"
    nbtc.load(HEAD + first_thread(body))["parent"][1, 32](np.zeros(1, np.uint32))
    assert capsys.readouterr().out == "<no error><out of memory><unrecognized error code>"


def test_an_answer_of_32_bits_leaves_its_neighbour_alone():
    body = f"""{{ .param .b64 p; .param .b32 status; .param .b32 beside; st.param.b64 [p], 0;
st.param.b32 [beside], 55; {CALL}Free, (p); ld.param.b32 %st, [status]; ld.param.b32 %v, [beside]; }}
st.u32 [%x], %st; st.u32 [%x+4], %v;"""
    out = np.full(2, 9, np.uint32)
    nbtc.load(HEAD + first_thread(body))["parent"][1, 32](out)
    assert out.tolist() == [0, 55]


REFUSED = {
    "1024 at most": launch("note", notes(), block=(2048, 1, 1)),
    "not a kernel of its module": launch("note", notes()).replace("mov.u64 %f, note", "mov.u64 %f, 12345"),
    "not a buffer for them": launch("note", notes()).replace("[p], %buf", "[p], 4096"),
    "of the device's CUDA runtime": f"{{ .param .b64 p; .param .b32 status; {CALL}Memset2DAsync, (p); }}",
    "reads 8 bytes at 0x1000, outside all memory": transfer("%x", "4096", 8),
    "writes 4 bytes at 0x0, outside all memory": transfer("0", None, 4),
    "outside": launch("note", notes("4096")),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_run_is_named(why):
    with pytest.raises((ProgramError, nbtc.errors.OptionError), match=why):
        nbtc.load(HEAD + NOTE + first_thread(REFUSED[why]))["parent"][1, 32](np.zeros(4, np.uint32))
