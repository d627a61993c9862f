"""What a sequence shows and when; its messages and errors.  Its hazards: test_register_hazards, test_memory_hazards."""

import numpy as np
import pytest

from nbtc.errors import BoundsError, FormatError, HazardError, OptionError, ShapeError
from nbtc.wgmma import Sequence, commit_group, fence, fence_proxy_async, wait_group

N8 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
ONES = np.float32(16).view(np.uint32)


def test_warpgroups_start_at_multiples_of_four_warps(run):
    with pytest.raises(HazardError, match="warp 2"):
        run(lambda p: p.product(), first_warp=2)
    run(lambda p: p.product(), first_warp=4)


def read_newest(p):
    p.s.fence()
    p.go(p.d)
    p.s.commit_group()
    p.go(p.e)
    p.done(1)
    p.e[...]


def test_message_names_instruction_and_register(run):
    with pytest.raises(HazardError) as found:
        run(read_newest)
    text = str(found.value)
    assert "e[0]" in text and "instruction 4," in text and "read of e" in text and "wait_group(0)" in text


def test_results_appear_when_waits_cover_them(program):
    p = program(check=False)
    p.s.fence()
    p.go(p.d, scale_d=0)
    p.s.commit_group()
    p.go(p.e, scale_d=0)
    p.s.commit_group()
    assert (p.d[...] == 0).all()
    p.s.wait_group(2)
    assert (p.d[...] == 0).all()
    p.s.wait_group(1)
    assert (p.d[...] == ONES).all() and (p.e[...] == 0).all()
    p.s.wait_group(0)
    assert (p.e[...] == ONES).all()


def test_chains_in_one_group(program):
    p = program()
    p.s.fence()
    for _ in range(3):
        p.go()
    p.done()
    assert (p.d[...].view(np.float32) == 48).all()


def test_uncommitted_products_outlast_waits(program):
    p = program(check=False)
    p.s.fence()
    p.go()
    p.s.wait_group(0)
    assert (p.d[...] == 0).all()
    p.done()
    assert (p.d[...] == ONES).all()


def test_stale_shared_memory(program):
    """Without the proxy fence the tensor core sees the old bytes; ordinary loads see the new ones."""
    p = program(check=False)
    p.s.store(0, np.zeros(p.b_at, np.uint8))
    assert (p.s.load(0, p.b_at) == 0).all()
    p.product()
    assert (p.d[...] == ONES).all()
    p.s.fence_proxy_async()
    p.go(scale_d=0)
    p.done()
    assert (p.d[...] == 0).all()


def test_operands_are_read_when_issued(program):
    p = program(check=False)
    p.s.fence()
    p.go(a=p.f)
    p.f[...] = 0
    p.s.store(p.b_at, np.zeros(256, np.uint8), proxy="async")
    p.done()
    assert (p.d[...] == ONES).all()


def test_batches_in_step(program):
    p = program()
    s = Sequence(np.stack([p.image, np.zeros_like(p.image)]))
    d = s.registers(4, "d")
    with s:
        s.fence()
        s.wgmma(N8, d, p.a, p.b)
        s.commit_group()
        s.wait_group(0)
    got = d[...]
    assert got.shape == (2, 128, 4) and (got[0] == ONES).all() and (got[1] == 0).all()


def test_functions_forward(program):
    p = program()
    fence(p.s)
    p.go()
    commit_group(p.s)
    wait_group(0, p.s)
    fence_proxy_async(p.s)
    assert (p.d[...] == ONES).all()
    fence(), commit_group(), wait_group(3), fence_proxy_async()  # from Python nothing is pending


def test_an_exception_is_not_hidden_by_the_exit(program):
    with pytest.raises(ZeroDivisionError), program().s as s:
        s.fence()
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "error, call",
    [
        (OptionError, lambda: Sequence(16, check="yes")),
        (FormatError, lambda: Sequence(np.zeros(16))),
        (FormatError, lambda: Sequence().registers(np.zeros((128, 4)))),
        (ShapeError, lambda: Sequence().registers(np.zeros((32, 4), np.uint32))),
        (BoundsError, lambda: Sequence(16).store(8, np.zeros(9, np.uint8))),
        (BoundsError, lambda: Sequence(16).load(-1, 1)),
        (OptionError, lambda: Sequence(16).store(0, np.zeros(1, np.uint8), proxy="tma")),
        (OptionError, lambda: Sequence().wait_group(-1)),
        (OptionError, lambda: wait_group(True)),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as found:
        call()
    assert len(str(found.value)) >= 40


def test_one_descriptor_or_one_a_thread(program):
    with pytest.raises(ShapeError):
        program().go(b=np.zeros(3, np.uint64))
