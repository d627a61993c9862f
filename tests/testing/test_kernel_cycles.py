"""Times of kernels' loops: every loop and every operation runs. What they take is no test's matter: clocks change."""

from math import isfinite

import pytest

from nbtc.compiler.cpu.host import features
from nbtc.testing import kernel_cycles
from nbtc.testing.kernel_code import SHAPES, WORDS

counted = pytest.mark.skipif(kernel_cycles.processor_name() is None, reason="no counts for this processor")


def test_every_kernel_has_operands() -> None:
    assert list(kernel_cycles.FLOATS) == list(SHAPES) and list(kernel_cycles.INTEGERS) == list(WORDS)


@counted
@pytest.mark.parametrize("name", [*SHAPES, *WORDS])
def test_every_loop_runs(name: str) -> None:
    found = kernel_cycles.cycles(name)
    assert found.bound >= 1 and isfinite(found.took) and found.took > 0


@pytest.mark.skipif(not features() >= kernel_cycles.NEEDS, reason="operations of AVX-512")
def test_an_operation_that_there_is_not() -> None:
    assert isfinite(kernel_cycles.cost_of("multiplication"))
    with pytest.raises(KeyError, match="division"):
        kernel_cycles.cost_of("division")
