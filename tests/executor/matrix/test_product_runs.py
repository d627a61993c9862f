"""Products that follow one another, which programs execute as one call: the bits of one after the other."""

import re

import numpy as np
import pytest

import nbtc
from nbtc.executor.code.helpers import emitting
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse
from nbtc.ops.images import flat
from nbtc.ops.mma import product as mma
from nbtc.testing import assert_bits_equal

FORMS = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
]
HALF = FORMS[3]
SETS = 4  # of registers for each operand
HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 P0, .param .u64 P1)"


def names(form, role, n):
    """The registers of set n of an operand; those of C and D are the same; "mixed" ones are of two of those."""
    if role == "mixed":
        return [names(form, "d", n)[0], names(form, "d", (n + 1) % SETS)[1]]
    return [f"%{role}{n}_{i}" for i in range(getattr(form, "c" if role == "d" else role).registers)]


def program(form, steps):
    """A kernel that loads all sets, executes products (guard, sets of D, A, B and C), and stores those of D."""
    kinds = {"a": "b32", "b": "b32", "d": "f32" if form.c.format.name == "f32" else "b32"}
    everything = [(kinds[role], x) for role in "abd" for n in range(SETS) for x in names(form, role, n)]
    body = [".reg .b64 %p<2>;", ".reg .b32 %t, %one;", ".reg .pred %yes, %no;", "mov.u32 %t, %tid.x;"]
    body += [f".reg .{kind} {x};" for kind, x in everything]
    body += ["and.b32 %one, %t, 0;", "setp.eq.u32 %yes, %one, 0;", "setp.ne.u32 %no, %one, 0;"]
    for n in range(2):
        body += [f"ld.param.u64 %p{n}, [P{n}];", f"mad.wide.u32 %p{n}, %t, {4 * len(everything)}, %p{n};"]
    body += [f"ld.global.{kind} {x}, [%p0+{4 * n}];" for n, (kind, x) in enumerate(everything)]
    for guard, *sets in steps:
        lists = ["{" + ", ".join(names(form, *s)) + "}" for s in sets]
        body.append(f"{guard} {form.mnemonic} {', '.join(lists)};")
    body += [f"st.global.{kind} [%p1+{4 * n}], {x};" for n, (kind, x) in enumerate(everything)]
    return HEAD + "\n{\n" + "\n".join(body) + "\nret;\n}\n"


def random_steps(rng, form, count):
    """Products of random sets: some accumulate, some are guarded, of halves some multiply what others wrote."""
    steps = []
    for _ in range(count):
        d, a, b, c = (int(n) for n in rng.integers(SETS, size=4))
        role = str(rng.choice(["b", "d", "mixed"], p=[0.8, 0.1, 0.1])) if form.mnemonic == HALF else "b"
        guard = str(rng.choice(["", "@%yes", "@%no"], p=[0.9, 0.05, 0.05]))
        steps.append((guard, ("d", d), ("a", a), (role, b), ("d", d if rng.random() < 0.7 else c)))
    return steps


def sets_of(rng, form, special):
    """Random registers of all sets; special: the operand of which one set has Inf and NaN in its last lanes.

    "large": halves of B up to the largest one, so that sums of f16 overflow, after the first eight products on sm_80.
    """
    found = {}
    for role in "abd":
        operand = getattr(form, "c" if role == "d" else role)
        moderate = {16: 0xBFFFBFFF, 8: 0xBFBFBFBF}.get(operand.format.bits, 0xBFFFFFFF)
        for n in range(SETS):
            raw = rng.integers(0, 1 << 32, (32, operand.registers), np.uint64).astype(np.uint32)
            raw[: 30 if special == role and n == 1 else 32] &= np.uint32(moderate)
            if special == "large" and role == "b":
                raw |= rng.integers(0, 2, raw.shape, np.uint32) * np.uint32(0x40004000) & ~np.uint32(0x04000400)
            found[role, n] = raw
    return found


def value(sets, of):
    """What registers hold."""
    role, n = of
    if role == "mixed":
        return np.stack([sets["d", n][:, 0], sets["d", (n + 1) % SETS][:, 1]], axis=1)
    return sets[of]


def general(form, arch, operands):
    """D as the code without vectors computes it."""
    plan = mma.prepare(form.row, arch)
    words = [flat(np.ascontiguousarray(x)[None], 2, (1,)) for x in operands]
    d = np.empty((32, form.c.registers), np.uint32)
    mma._general(plan, words, d.reshape(-1), 0, 1)
    return d


@pytest.mark.parametrize(
    ("mnemonic", "arch"), [*((form, "sm_90") for form in FORMS), (HALF, "sm_80"), (FORMS[0], "sm_80")]
)
def test_one_after_the_other(mnemonic, arch):
    form, rng = nbtc.instruction(mnemonic), np.random.default_rng(len(mnemonic))
    steps = random_steps(rng, form, 50)
    kernel = nbtc.load(program(form, steps), arch=arch)["k"]
    for special in ("", "a", "b", "d", *(["large"] if form.b.format.name == "f16" else [])):
        sets = sets_of(rng, form, special)
        given = np.concatenate(list(sets.values()), axis=1)
        for guard, d, a, b, c in steps:
            if guard != "@%no":
                sets[d] = general(form, arch, [value(sets, s) for s in (a, b, c)])
        out = np.zeros_like(given)
        kernel[1, 32](given, out)
        assert_bits_equal(out, np.concatenate(list(sets.values()), axis=1))


def module_of(text):
    with emitting():
        return str(Machine(link(parse(text), "k"), BlockShape.of((32, 1, 1)), Options("sm_90")).module)


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        ({}, [3]),
        ({"guard": "@%yes"}, [1, 1, 1]),
        ({"b": ("mixed", 3)}, [1, 2]),  # what the first one writes
        ({"b": ("mixed", 2)}, [3]),
        ({"b": ("mixed", 0)}, [1, 1, 1]),  # what it writes itself
        ({"b": ("d", 0)}, [1, 1, 1]),  # decoded where it lives
        ({"d": ("d", 3), "c": ("d", 0)}, [3]),
    ],
)
def test_which_products_are_one_call(change, calls):
    """The second of three products decides."""
    form = nbtc.instruction(HALF)
    usual = {"guard": "", "d": ("d", 1), "a": ("a", 0), "b": ("b", 1), "c": ("d", 1)}
    steps = [tuple((usual | new).values()) for new in ({"d": ("d", 0), "c": ("d", 0)}, change, {"b": ("b", 2)})]
    text = module_of(program(form, steps))
    found = re.findall(r'call void @"nbtc_product(?:_run(\d+))?_\w{16}"', text)
    assert [int(n or 1) for n in found] == calls


@pytest.mark.parametrize("operand", [("d", 1), ("mixed", 0), ("mixed", 1)])
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_product_that_replaces_what_it_multiplied(side, operand):
    """The next product multiplies the result, though its operand has the names that the first one's had."""
    mnemonic = HALF if side == "b" else HALF.replace("m16n8k16", "m16n8k8")
    form, rng = nbtc.instruction(mnemonic), np.random.default_rng(5)
    factors = [operand if role == side else (role, 0) for role in "ab"]
    steps = [("", ("d", n), *factors, ("d", n)) for n in (1, 0)]
    sets = sets_of(rng, form, "")
    given = np.concatenate(list(sets.values()), axis=1)
    for _, d, a, b, c in steps:
        sets[d] = general(form, "sm_90", [value(sets, s) for s in (a, b, c)])
    out = np.zeros_like(given)
    nbtc.load(program(form, steps), arch="sm_90")["k"][1, 32](given, out)
    assert_bits_equal(out, np.concatenate(list(sets.values()), axis=1))
