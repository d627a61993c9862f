"""Words of shared memory that are written in part: padding that a copy takes along, bit-fields, and neither."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

HEAD = """.version 8.0 .target sm_90 .address_size 64
.visible .entry copies(.param .u64 out, .param .u32 mask) {
  .reg .b16 h<9>; .reg .b32 t, a, b, m, x<9>; .reg .pred p; .reg .b64 q, w, z<3>;
  .shared .align 16 .b8 s[1024];
  ld.param.u64 q, [out]; ld.param.u32 m, [mask]; mov.u32 t, %tid.x;
  mul.wide.u32 w, t, 16; add.u64 q, q, w; mov.u32 x0, s; mad.lo.u32 a, t, 16, x0; xor.b32 b, a, 496;
"""
BAR, OUT = "bar.sync 0;", "st.global.b32 [q], x1; ret; }"
RIGHT = {
    # struct { float x; char tag; }, by words and by bytes, as NVRTC copies it
    "bytes": f"""st.shared.b32 [a], t; cvt.u16.u32 h5, t; st.shared.u8 [a+4], h5; {BAR}
        ld.shared.v4.u8 {{h1, h2, h3, h4}}, [b+4]; ld.shared.b32 x1, [b];
        st.global.v4.u8 [q+4], {{h1, h2, h3, h4}}; {OUT}""",
    "words": f"""st.shared.v2.b32 [a], {{t, t}}; st.shared.b32 [a+8], t; {BAR}
        ld.shared.v4.b32 {{x1, x2, x3, x4}}, [b]; st.global.v4.b32 [q], {{x1, x2, x3, x4}}; ret; }}""",
    "halves of words": f"""cvt.u16.u32 h1, t; st.shared.b16 [a], h1; st.shared.b32 [a+4], t; {BAR}
        ld.shared.b64 z1, [b]; st.global.b64 [q], z1; ret; }}""",
    "padding at the end": f"""cvt.u16.u32 h1, t; st.shared.b16 [a+4], h1; st.shared.b32 [a], t; {BAR}
        ld.shared.b32 x2, [b]; ld.shared.b16 h2, [b+4]; ld.shared.v2.b8 {{h3, h4}}, [b+6];
        st.global.b32 [q], x2; st.global.b16 [q+4], h2; st.global.v2.b8 [q+6], {{h3, h4}}; ret; }}""",
    "moved, by way of shared memory": f"""cvt.u16.u32 h1, t; st.shared.b16 [a], h1; st.shared.b32 [a+4], t; {BAR}
        ld.shared.b32 x3, [b]; ld.shared.b32 x4, [b+4]; mov.b32 x2, x3; {BAR} st.shared.b32 [a], x2;
        st.shared.b32 [a+4], x4; {BAR} ld.shared.b16 h2, [a]; cvt.u32.u16 x1, h2; {OUT}""",
    # struct { unsigned first : 3, second : 5; }
    "bit-fields": f"""ld.shared.b32 x2, [a]; and.b32 x3, x2, -8; and.b32 x4, t, 7; or.b32 x5, x3, x4;
        st.shared.b32 [a], x5; {BAR} ld.shared.b32 x6, [b]; and.b32 x1, x6, 7; {OUT}""",
    "bit-field of one bit": f"""ld.shared.b32 x2, [a]; or.b32 x3, x2, 1; st.shared.b32 [a], x3; {BAR}
        ld.shared.b32 x4, [b]; and.b32 x1, x4, 1; {OUT}""",
    "bfi": f"""ld.shared.b32 x2, [a]; bfi.b32 x3, t, x2, 3, 5; st.shared.b32 [a], x3; {BAR}
        ld.shared.b32 x4, [b]; bfe.u32 x1, x4, 3, 5; {OUT}""",
}
WRONG = {
    "nothing of the copy is written": f"""setp.lt.u32 p, t, 16; @p st.shared.b32 [a], t; {BAR}
        ld.shared.b32 x1, [a]; {OUT}""",
    "a word alone, copied": f"""cvt.u16.u32 h1, t; st.shared.b16 [a], h1; {BAR} ld.shared.b32 x1, [b]; {OUT}""",
    "two words, copied, of which nothing is written": f"""{BAR} ld.shared.b32 x2, [b]; ld.shared.b32 x3, [b+4];
        st.global.b32 [q], x2; st.global.b32 [q+4], x3; ret; }}""",
    "the first of two, stored before the second is loaded": f"""st.shared.b32 [a+4], t; {BAR} ld.shared.b32 x2, [b];
        st.global.b32 [q], x2; ld.shared.b32 x3, [b+4]; st.global.b32 [q+4], x3; ret; }}""",
    "two words to places that are no structure's": f"""st.shared.b32 [a+4], t; {BAR} ld.shared.b32 x2, [b+4];
        ld.shared.b32 x3, [b]; st.global.b32 [q], x2; st.global.b32 [q+4], x3; ret; }}""",
    "a part is computed with": f"""cvt.u16.u32 h1, t; st.shared.b16 [a], h1; {BAR}
        ld.shared.b32 x2, [b]; add.u32 x1, x2, 1; {OUT}""",
    "one of four": f"""st.shared.v2.b32 [a], {{t, t}}; {BAR} ld.shared.v4.b32 {{x1, x2, x3, x4}}, [b];
        add.u32 x1, x1, x3; {OUT}""",
    "a branch": f"""cvt.u16.u32 h1, t; st.shared.b16 [a], h1; {BAR} ld.shared.b32 x1, [b];
        setp.eq.u32 p, x1, 5; @p bra away; st.global.b32 [q], t; away: ret; }}""",
    "bits that are not constant": f"ld.shared.b32 x2, [a]; or.b32 x3, x2, m; st.shared.b32 [a], x3; {BAR} ret; }}",
    "a sum": f"ld.shared.b32 x2, [a]; add.u32 x3, x2, 1; st.shared.b32 [a], x3; {BAR} ret; }}",
    "bits stored elsewhere": f"ld.shared.b32 x2, [a]; and.b32 x3, x2, 7; st.shared.b32 [b+512], x3; {BAR} ret; }}",
    "bits stored and used": f"""ld.shared.b32 x2, [a]; and.b32 x3, x2, 7; st.shared.b32 [a], x3; add.u32 x1, x2, 1;
        {OUT}""",
    "half of the word stored": f"ld.shared.b32 x2, [a]; and.b32 x3, x2, 7; st.shared.b8 [a], x3; {BAR} ret; }}",
    "bits of an address that moves": f"""ld.shared.b32 x2, [a]; and.b32 x3, x2, 7; add.u32 a, a, 512;
        st.shared.b32 [a], x3; {BAR} ret; }}""",
}


def _launch(body: str) -> None:
    nbtc.load(HEAD + body)["copies"].checked[1, 32](np.zeros(256, np.uint32), np.uint32(9))


@pytest.mark.parametrize("name", RIGHT)
def test_padding_and_bit_fields_are_no_use_of_unwritten_memory(name: str) -> None:
    _launch(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_what_counts_is_reported(name: str) -> None:
    with pytest.raises(ProgramError, match="uninitialised shared memory"):
        _launch(WRONG[name])
