"""Times of kernels' loops: they run, and none is below what the processor's ports allow."""

import pytest

from nbtc.compiler.cpu.host import features
from nbtc.testing import kernel_cycles
from nbtc.testing.kernel_code import SHAPES, WORDS

LEAST = 0.8  # of a bound: clocks change while two loops are timed one after the other
counted = pytest.mark.skipif(kernel_cycles.processor_name() is None, reason="no counts for this processor")


def test_every_kernel_has_operands() -> None:
    assert list(kernel_cycles.FLOATS) == list(SHAPES) and list(kernel_cycles.INTEGERS) == list(WORDS)


@counted
@pytest.mark.parametrize("name", [*SHAPES, *WORDS])
def test_no_loop_is_faster_than_its_ports(name: str) -> None:
    found = kernel_cycles.cycles(name)
    assert found.took > LEAST * found.bound > 0


@pytest.mark.skipif(not features() >= kernel_cycles.NEEDS, reason="operations of AVX-512")
def test_a_multiplication_takes_the_place_of_a_multiply_add() -> None:
    assert kernel_cycles.cost_of("multiplication") > LEAST
    assert kernel_cycles.cost_of("addition") < kernel_cycles.cost_of("store of 512 bits")
