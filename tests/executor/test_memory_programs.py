"""Random programs of all register widths, memory spaces and calls: the machine gives what single threads give."""

import numpy as np
import pytest

import nbtc
from nbtc.testing.memory_programs import random_memory_program
from nbtc.testing.scalar_inputs import words
from tests.reference import whole_interpreter

CONSTRUCTS = (
    "ld.local", "st.local", "ld.const", "ld.shared.v4", "st.shared.v2", "ld.global.nc", "ld.u", "st.b",
    "atom.shared.cas", "red.shared", "cp.async.ca", "cp.async.bulk", "try_wait", "cp.async.wait_group", "ldmatrix",
    "stmatrix", "movmatrix", "shfl", "match.any", "redux", "vote", "brx.idx", "call (", "exit;", "bra DONE",
    "bar.sync", "bar.warp.sync", "addc.cc", "madc", "setp.", "cvt.sat", "prmt", "isspacep",
    "%s0", "%h4", "f16x2", "bf16x2", "f64", "mov.b64 {", ".relaxed.gpu",
)  # fmt: skip


def arrays(program, seed):
    """What a program reads and changes: edges of types, and small numbers."""
    rng = np.random.default_rng(seed)
    found = [words(rng, "f32", size // 4) for size in program.bytes]
    return [np.where(rng.random(x.size) < 0.3, x % 100, x).astype(np.uint32) for x in found]


def by_threads(text, program, given):
    found = [bytearray(x.tobytes()) for x in given]
    whole_interpreter.run(text, "k", program.grid, program.block, found)
    return [np.frombuffer(x, np.uint32) for x in found]


@pytest.mark.parametrize("seed", range(8))
def test_machine_and_single_threads_agree(seed):
    program = random_memory_program(seed)
    given = arrays(program, seed)
    expected = by_threads(program.text, program, given)
    nbtc.load(program.text)["k"].launch(program.grid, program.block, given)
    for found, wanted in zip(given, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_bit_that_one_instruction_changes_is_seen():
    program = random_memory_program(6)
    given = arrays(program, 0)
    changed = program.text.replace("\nDONE:", "\nxor.b64 %d0, %d0, 1;\nDONE:")
    assert any(
        (x != y).any() for x, y in zip(*(by_threads(t, program, given) for t in (program.text, changed)), strict=True)
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_programs_are_legal(arch):
    for seed in range(60):
        nbtc.load(random_memory_program(seed, arch).text)


def test_programs_differ_and_repeat():
    texts = [random_memory_program(seed).text for seed in range(200)]
    assert len(set(texts)) == 200
    assert texts[7] == random_memory_program(7).text
    for construct in CONSTRUCTS:
        assert sum(construct in text for text in texts) >= 3, construct
