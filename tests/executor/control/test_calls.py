"""Functions: arguments, results, recursion, addresses, and what the host provides."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.launch.device_heap import Heap
from nbtc.executor.launch.printf import Values, formatted

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
INDEX = """
 .reg .pred %p<5>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
 ld.param.u64 %rd1, [out]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;
"""


def kernel(functions, text):
    return nbtc.load(f"{HEAD}{functions} .visible .entry k(.param .u64 out) {{ {INDEX} {text} }}")["k"]


def run(k, lanes=32):
    out = np.zeros(lanes, np.uint32)
    k[1, lanes](out)
    return out


def test_recursion_with_a_depth_of_its_own_in_each_lane():
    k = kernel(
        ".func (.param .b32 res) sum(.param .b32 n) { .reg .pred p; .reg .b32 a, b, c; .reg .b64 d;"
        " .local .b32 keep[2];"
        " ld.param.b32 a, [n]; mov.u64 d, keep; st.local.b32 [d+4], a; setp.eq.u32 p, a, 0; mov.u32 c, 0; @p bra R;"
        " sub.u32 b, a, 1; { .param .b32 x; .param .b32 y; st.param.b32 [x], b; call (y), sum, (x);"
        " ld.param.b32 c, [y]; } ld.local.b32 b, [d+4]; add.u32 c, c, b; R: st.param.b32 [res], c; ret; }",
        "and.b32 %r3, %r2, 7; { .param .b32 x; .param .b32 y; st.param.b32 [x], %r3; call.uni (y), sum, (x);"
        " ld.param.b32 %r4, [y]; } st.global.u32 [%rd3], %r4; ret;",
    )
    n = np.arange(32) & 7
    np.testing.assert_array_equal(run(k), n * (n + 1) // 2)


def test_endless_recursion_is_named():
    k = kernel(".func f() { call f; ret; }", "call f; ret;")
    with pytest.raises(ProgramError, match="stack is full"):
        run(k)


def test_registers_as_parameters_and_a_call_some_lanes_make():
    k = kernel(
        ".func (.reg .b32 r) twice(.reg .b32 x) { add.u32 r, x, x; ret; }",
        "setp.lt.u32 %p1, %r2, 5; mov.u32 %r4, 1; @%p1 call (%r4), twice, (%r2); st.global.u32 [%rd3], %r4; ret;",
    )
    np.testing.assert_array_equal(run(k), [0, 2, 4, 6, 8, *[1] * 27])


ENDS = {  # bodies of functions, and what each gives for the number x of its lane, as a float
    "mul.f32 t, x, x; add.f32 r, t, x; ret;": lambda x: x * x + x,
    "mul.f32 r, x, x; add.f32 t, r, x; setp.gt.f32 p, t, 20.0; @p mov.f32 r, x; ret;": (
        lambda x: np.where(x * x + x > 20, x, x * x)
    ),
    "mul.f32 r, x, x; add.f32 t, r, x; setp.gt.f32 p, t, 20.0; @p ret; mov.f32 r, t;": (
        lambda x: np.where(x * x + x > 20, x * x, x * x + x)
    ),
    "add.f32 r, x, x; setp.gt.f32 p, r, 20.0; @p bra L; add.f32 r, r, x; L:": (
        lambda x: np.where(x + x > 20, x + x, 3 * x)
    ),
    "mul.f32 r, x, x; setp.gt.f32 p, r, 20.0; @p bra L; add.f32 r, r, x; L:": (
        lambda x: np.where(x * x > 20, x * x, x * x + x)
    ),
}


def test_results_in_registers_are_read_where_a_function_ends():
    """With products, which fuse, and where nothing says that it returns: ptxas 13.0's code for sm_80 returns there."""
    functions = [
        f".func (.reg .f32 r) f{n}(.reg .f32 x) {{ .reg .f32 t; .reg .pred p; {body} }}" for n, body in enumerate(ENDS)
    ]
    calls = [
        f"call (%f1), f{n}, (%f0); cvt.rzi.u32.f32 %r3, %f1; st.global.u32 [%rd3+{128 * n}], %r3;"
        for n in range(len(ENDS))
    ]
    k = kernel("\n".join(functions), f".reg .f32 %f<2>; cvt.rn.f32.u32 %f0, %r2; {' '.join(calls)} ret;")
    out = np.zeros((len(ENDS), 32), np.uint32)
    k[1, 32](out)
    np.testing.assert_array_equal(out, [expected(np.arange(32)) for expected in ENDS.values()])


def test_functions_by_address():
    k = kernel(
        ".func (.reg .b32 r) f(.reg .b32 x) { add.u32 r, x, 100; ret; }"
        ".func (.reg .b32 r) g(.reg .b32 x) { add.u32 r, x, 200; ret; } .global .u64 table[2] = {f, g};",
        "P: .callprototype (.reg .b32 _) _ (.reg .b32 _); and.b32 %r3, %r2, 1; mul.wide.u32 %rd4, %r3, 8;"
        "mov.u64 %rd5, table; add.u64 %rd5, %rd5, %rd4; ld.global.u64 %rd6, [%rd5];"
        "call (%r4), %rd6, (%r2), P; st.global.u32 [%rd3], %r4; ret;",
    )
    np.testing.assert_array_equal(run(k), np.arange(32) + np.tile([100, 200], 16))


def test_a_call_of_nothing():
    k = kernel(
        ".func f() { ret; } .global .u64 table[1] = {f};",
        "P: .callprototype _ (); mov.u64 %rd4, 12345; call %rd4, P; ret;",
    )
    with pytest.raises(ProgramError, match="not a function"):
        run(k)


def test_lanes_return_early():
    k = kernel(
        ".func (.reg .b32 r) f(.reg .b32 x) { .reg .pred p; mov.u32 r, 1; setp.lt.u32 p, x, 9;"
        " @p ret; mov.u32 r, 2; ret; }",
        "call (%r4), f, (%r2); call (%r5), f, (%r4); add.u32 %r4, %r4, %r5; st.global.u32 [%rd3], %r4; ret;",
    )
    np.testing.assert_array_equal(run(k), [2] * 9 + [3] * 23)


PRINTF = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);"


def test_printf(capsys):
    text = b"lane %d says %s%%\n\0"
    name = b"hello\0"
    k = kernel(
        f"{PRINTF} .global .b8 fmt[{len(text)}] = {{{', '.join(map(str, text))}}};"
        f".global .b8 word[{len(name)}] = {{{', '.join(map(str, name))}}};",
        ".local .align 8 .b8 args[16]; setp.ne.u32 %p1, %r2, 3; @%p1 bra X; mov.u64 %rd4, args;"
        "st.local.u32 [%rd4], %r2;"
        "mov.u64 %rd5, word; cvta.global.u64 %rd5, %rd5; st.local.u64 [%rd4+8], %rd5; cvta.local.u64 %rd6, %rd4;"
        "mov.u64 %rd7, fmt; { .param .b64 p; .param .b64 q; .param .b32 r; st.param.b64 [p], %rd7;"
        "st.param.b64 [q], %rd6; call.uni (r), vprintf, (p, q); ld.param.b32 %r5, [r]; }"
        "st.global.u32 [%rd3], %r5; X: ret;",
    )
    assert run(k).tolist() == [0] * 3 + [2] + [0] * 28  # how many values it was given
    assert capsys.readouterr().out == "lane 3 says hello%\n"


@pytest.mark.parametrize(
    ("text", "raw", "said"),
    [
        ("%5d|%-5d|%05d|%+d", [7, 7, -7, 7], "    7|7    |-0007|+7"),
        ("%u %x %X %o %#x", [4294967295, 255, 255, 8, 255], "4294967295 ff FF 10 0xff"),
        ("%c%%", [65], "A%"),
        ("%*d", [6, 42], "    42"),
    ],
)
def test_formats_of_whole_numbers(text, raw, said):
    values = np.array(raw, np.int64).astype(np.uint32)
    assert formatted(text, Values(values.ctypes.data, text), str) == said


@pytest.mark.parametrize(
    ("text", "values", "said"),  # as C has it, "fprintf"
    [
        ("%#x|%#o|%#X|%#5x|%#.3x", [0, 0, 0, 0, 0], "0|0|0|    0|000"),
        ("%+u|% u|%+i|% i|%#x|%#X", [5, 5, 3, 3, 255, 255], "5|5|+3| 3|0xff|0XFF"),
        ("%.0d|%5.0d|%.3x|%05.3d|%-05d|", [0, 0, 5, 7, 7], "|     |005|  007|7    |"),
        ("%*d|%-*d|%.*d", [-6, 1, 4, 2, 3, 7], "1     |2   |007"),
        ("%#o|%5c|%-3c|", [8, 65, 66], "010|    A|B  |"),
    ],
)
def test_whole_numbers_in_the_corners_of_c(text, values, said):
    assert said_of(text, np.array(values, np.int32)) == said


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("%05f", np.inf, "  inf"), ("%F", -np.inf, "-INF"), ("%+e", np.nan, "+nan"), ("%08.3f", -1.5, "-001.500"),
        ("%a", 0.5, "0x1p-1"), ("%A", 3.0, "0X1.8P+1"), ("%.2a", 1.999, "0x2.00p+0"), ("%.1a", 1.03125, "0x1.0p+0"),
        ("%.3a", 0.0, "0x0.000p+0"), ("%012a", -1.0, "-0x000001p+0"), ("%#g", 1.0, "1.00000"),
        ("%+.2e", 1.5, "+1.50e+00"),
    ],
)  # fmt: skip
def test_floats_in_the_corners_of_c(text, value, said):
    assert said_of(text, np.array([value])) == said


def test_a_negative_precision_is_none():
    words = np.array([-1, 0, 0, 0], np.int32)
    words[2:] = np.array([1.5]).view(np.int32)
    assert said_of("%.*f", words) == "1.500000"


def test_memory_of_growing_sizes_is_used_again():
    heap = Heap()
    for n in range(1, 1025):
        address = heap.take(16 * n)
        assert address and heap.give(address)
    kept = [heap.take(1 << 20) for _ in range(7)]
    assert all(kept) and heap.take(2 << 20) == 0
    for address in kept[::2] + kept[1::2]:
        assert heap.give(address) and not heap.give(address)
    assert heap.take(7 << 20)


def said_of(text, values):
    return formatted(text, Values(values.ctypes.data, text), str)


def test_formats_of_wide_values():
    assert said_of("%f %g %.3e", np.array([1.5, -2.0, 1e100])) == "1.500000 -2 1.000e+100"
    wide = np.array([(-5) % 2**64, 1 << 63], np.uint64)
    assert said_of("%lld %llu", wide) == "-5 9223372036854775808"


@pytest.mark.parametrize(
    ("text", "words", "printed"),  # printed by an H200, driver 580.159.04
    [
        ("A %hd %hhd B", [30700, -20], "A 30700 65 B"),
        ("A %d %hhd %d B", [1, 2, 3], "A 1 2 1680154689 B"),
        ("A %hhd %d %d B", [1, 2, 3], "A 1 2 1747263553 B"),
        ("A %hhd %hhu %hhx B", [5, 6, 7], "A 65 104 0 B"),
        ("A %hd %hu %hx", [70000, 70001, 70002], "A 4464 4465 1172"),
        ("A %5hhd|%zd|%jd|%td", [1, 2, 3, 4, 5, 6, 7, 8], "A    65|%zd|%jd|%td"),
        ("%p|%10p|%p", [0, 0, 1, 0, 255, 1], "(nil)|       0x1|0x1000000ff"),
        ("%a|%A", [0, 0x3FF80000, 0, 0x3FF80000], "0x1.8p+0|0X1.8P+0"),
        ("%i|%F|%k|%n|%%", [7, 0, 0, 0x40000000], "7|2.000000|%k|%n|%"),
        ("%ld|%lu|%lx|%Lf|%qd", [1, 0, 2, 0, 3, 0, 0, 0x40000000, 5, 0], "1|2|3|%Lf|%qd"),
        ("%#o|%o|% d|%+5d|%-5d|", [8, 8, 3, 3, 3], "010|10| 3|   +3|3    |"),
    ],
)
def test_formats_as_a_device_prints_them(text, words, printed):
    assert said_of(text, np.array(words, np.int64).astype(np.uint32)) == printed


def test_an_assertion_ends_the_launch():
    k = kernel(
        ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);"
        ".global .b8 m[4] = {120, 62, 48, 0};",
        "mov.u64 %rd4, m; mov.u64 %rd5, 1; mov.u32 %r3, 77; { .param .b64 a; .param .b64 b; .param .b32 c;"
        ".param .b64 d;"
        ".param .b64 e; st.param.b64 [a], %rd4; st.param.b64 [b], %rd4; st.param.b32 [c], %r3; st.param.b64 [d], %rd4;"
        "st.param.b64 [e], %rd5; call.uni __assertfail, (a, b, c, d, e); } ret;",
    )
    with pytest.raises(ProgramError, match="x>0:77: x>0: assertion `x>0` failed"):
        run(k)


def test_memory_from_malloc():
    k = kernel(
        ".extern .func (.param .b64 r) malloc(.param .b64 n); .extern .func free(.param .b64 p);",
        "mov.u64 %rd4, 8; { .param .b64 n; .param .b64 r; st.param.b64 [n], %rd4; call.uni (r), malloc, (n);"
        "ld.param.b64 %rd5, [r]; } st.u32 [%rd5+4], %r2; ld.u32 %r3, [%rd5+4]; st.global.u32 [%rd3], %r3;"
        "{ .param .b64 p; st.param.b64 [p], %rd5; call.uni free, (p); } ret;",
    )
    np.testing.assert_array_equal(run(k), np.arange(32))


def test_variables_of_one_name_in_several_functions_are_several():
    text = """.version 8.0
.target sm_80
.address_size 64
.global .u32 x = 3;
.func (.param .b32 r) next() { .global .u32 x = 50; .reg .b32 a; .reg .b64 d; mov.u64 d, x;
 ld.global.u32 a, [d]; add.u32 a, a, 1; st.global.u32 [d], a; st.param.b32 [r], a; ret; }
.visible .entry k(.param .u64 p) { .global .u32 x = 500; .reg .b32 a, b; .reg .b64 d, e;
 { .param .b32 r; call (r), next, (); ld.param.b32 a, [r]; } ld.param.u64 d, [p]; st.global.u32 [d], a;
 { .const .u32 x = 8; mov.u64 e, x; ld.const.u32 b, [e]; } st.global.u32 [d+4], b;
 mov.u64 e, x; ld.global.u32 b, [e]; st.global.u32 [d+8], b; ret; }
.visible .entry j(.param .u64 p) { .reg .b32 b; .reg .b64 d, e;
 ld.param.u64 d, [p]; mov.u64 e, x; ld.global.u32 b, [e]; st.global.u32 [d+12], b; ret; }
"""
    module, out = nbtc.load(text), np.zeros(4, np.uint32)
    for name in ("k", "j", "k"):
        module[name][1, 1](out)
    assert out.tolist() == [52, 8, 500, 3]
    assert module.globals["next::x"].view(np.uint32)[0] == 52 and module.globals["x"].view(np.uint32)[0] == 3
