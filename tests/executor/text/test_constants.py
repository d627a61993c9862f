"""Constant expressions, initialisers and what is refused while text is read."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import OptionError, ParseError

HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"
KERNEL = ".visible .entry k() { .reg .b64 q; .reg .b32 a; .reg .pred p; %s ret; }\n"

# The words that ptxas 13.0 writes for `.global .u64 x = EXPRESSION;`
EXPRESSIONS = {
    "~0U >> 1": 0x7FFFFFFFFFFFFFFF,
    "~0 >> 1": 0x7FFFFFFFFFFFFFFF,
    "~0U / 2": 0x7FFFFFFFFFFFFFFF,
    "-1 > 0U": 1,
    "-1 >> 1": 0xFFFFFFFFFFFFFFFF,
    "-1 >> 65": 0xFFFFFFFFFFFFFFFF,
    "1 << 65": 2,
    "1<<63>>63": 0xFFFFFFFFFFFFFFFF,
    "0x8000000000000000 >> 63": 1,
    "0xFFFFFFFFFFFFFFFF / 3": 0x5555555555555555,
    "(.s64)0x8000000000000000 / 2": 0xC000000000000000,
    "(.u64)-1 > 0": 1,
    "9223372036854775807 + 1 > 0": 0,
    "9223372036854775808 - 1 > 0": 1,
    "-7/2": 0xFFFFFFFFFFFFFFFD,
    "-7 % 3": 0,  # unsigned, both
    "7 % -3": 7,
    "(7 % 4) - 4 < 0": 0,
    "(-1 & -1) < 0": 1,
    "(1U|2)-4 < 0": 0,
    "5 ^ 6 - 1": 0,
    "!0U - 2 < 0": 1,
    "(1U<2U) - 2 < 0": 1,
    "1 ? 2 : 3": 2,
    "0?1:0?3:4": 4,
    "(1 ? -1 : 0U) < 0": 1,
    "(1U<<1)-3<0": 0,
    "2+3*4": 14,
    "-8/3U": 0x5555555555555552,
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text):
    m = nbtc.load(f"{HEAD}.global .u64 x = {text};\n{KERNEL % ''}")
    assert m.globals["x"].view(np.uint64)[0] == EXPRESSIONS[text]


@pytest.mark.parametrize(
    ("declaration", "want"),
    [
        ("x[2][3] = {{1,2},{3,4,5}}", [1, 2, 0, 3, 4, 5]),
        ("x[3][2] = {{1,2},{3}}", [1, 2, 3, 0, 0, 0]),
        ("x[][2] = {{1},{2,3},{4}}", [1, 0, 2, 3, 4, 0]),
        ("x[2][2] = {1,2,3}", [1, 2, 3, 0]),
        ("x[] = {1,2,3}", [1, 2, 3]),
    ],
)
def test_nested_initialisers(declaration, want):
    m = nbtc.load(f"{HEAD}.global .u32 {declaration};\n{KERNEL % ''}")
    assert m.globals["x"].view(np.uint32).tolist() == want


REFUSED = {
    HEAD.replace("8.4", "abc") + KERNEL % "": "version",
    HEAD + ".global .u32 x = 1.5;\n" + KERNEL % "": r"\.f32",
    HEAD + ".global .u32 x[2] = {1,2,3};\n" + KERNEL % "": "3 values for 2",
    HEAD + ".global .u32 x[-1];\n" + KERNEL % "": "extent",
    HEAD + ".global .align , .u32 x;\n" + KERNEL % "": "number",
    HEAD + KERNEL % "mov.b64 q, 0x1ffffffffffffffff;": "65 bits",
    HEAD + KERNEL % "mov.u32 a,;": "operand",
    HEAD + KERNEL % ("mov.u32 a," + "(" * 3000 + "1" + ")" * 3000 + ";"): "deeply",
    HEAD + KERNEL % ".reg .b64 w<4294967296>;": "registers",
    HEAD + KERNEL % ".reg .pred w<a>;": "number",
    HEAD + KERNEL % "@a mov.u32 a, 1;": "predicate",
    HEAD + KERNEL % ".loc x y z;": r"\.loc",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_refused(text):
    with pytest.raises(ParseError, match=REFUSED[text]):
        nbtc.load(text)


def test_an_empty_body_returns():
    nbtc.load(HEAD + ".visible .entry k() { }")["k"][1, 32]()


def test_blocks_have_64_threads_along_z():
    k = nbtc.load(HEAD + KERNEL % "")["k"]
    k[1, (1, 1, 64)]()
    with pytest.raises(OptionError, match="64"):
        k[1, (1, 1, 65)]()
