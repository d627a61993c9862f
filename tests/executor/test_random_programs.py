"""Random structured programs: the machine gives what an interpreter of single threads gives."""

import numpy as np
import pytest

import nbtc
from nbtc.testing.programs import random_program
from tests.reference import interpreter


def memory(program, seed):
    """Random words, half of them small."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, program.words, dtype=np.uint64).astype(np.uint32)
    return np.where(rng.random(program.words) < 0.5, words % 50, words).astype(np.uint32)


@pytest.mark.parametrize("seed", range(24))
def test_machine_and_interpreter_agree(seed):
    program = random_program(seed)
    array = memory(program, seed)
    expected = interpreter.run(program.text, "k", program.grid, program.block, array)
    nbtc.load(program.text)["k"][program.grid, program.block](array)
    np.testing.assert_array_equal(array, expected)


def test_the_interpreter_reports_a_deadlock():
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 array) {
.reg .pred %p; .reg .b32 %r<3>;
mov.u32 %r1, %tid.x;
setp.lt.u32 %p, %r1, 5;
@%p bra ONE;
bar.sync 0;
ret;
ONE:
redux.sync.add.u32 %r2, %r1, 0xffffffff;
ret;
}"""
    with pytest.raises(RuntimeError, match="deadlock"):
        interpreter.run(text, "k", 1, 32, np.zeros(4, np.uint32))


def test_programs_differ_and_repeat():
    texts = [random_program(seed).text for seed in range(100)]
    assert len(set(texts)) == 100
    assert texts[7] == random_program(7).text
    for construct in ("bar.sync", "redux.sync", "shfl.sync", "vote.sync", "red.global", "bra DONE", "%c1"):
        assert sum(construct in text for text in texts) >= 5, construct
