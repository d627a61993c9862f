"""The asynchronous contract: every hazard has a minimal broken program and a correct twin."""

import numpy as np
import pytest

from nbtc.errors import BoundsError, FormatError, HazardError, OptionError, ShapeError
from nbtc.wgmma import Descriptor, Sequence, commit_group, fence, fence_proxy_async, tile_to_smem, wait_group

N8 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
N16 = "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16"  # four registers a thread, as N8
ONES = np.float32(16).view(np.uint32)


class Program:
    """A sequence over tiles of ones, with its usual steps as short words."""

    def __init__(self, check=True, **more):
        a, self.a = tile_to_smem(np.ones((64, 16), np.float16), "f16")
        b, b_desc = tile_to_smem(np.ones((16, 16), np.float16), "f16")
        self.image, self.b_at = np.concatenate([a, b]), a.size
        self.b = Descriptor(a.size, b_desc.leading, b_desc.stride)
        self.s = Sequence(self.image, check=check, **more)
        self.d, self.e = self.s.registers(4, "d"), self.s.registers(4, "e")
        self.f = self.s.registers(np.full((128, 4), 0x3C003C00, np.uint32), "f")

    def go(self, d=None, name=N8, a=None, **more):
        self.s.wgmma(name, self.d if d is None else d, self.a if a is None else a, more.pop("b", self.b), **more)

    def done(self, n=0):
        self.s.commit_group()
        self.s.wait_group(n)


def no_fence(p):
    p.go()
    p.done()


def with_fence(p):
    p.s.fence()
    p.go()
    p.done()


def write_then_go(p):
    with_fence(p)
    p.d[:, 2] = 0
    p.go()
    p.done()


def write_fence_go(p):
    with_fence(p)
    p.d[:, 2] = 0
    p.s.fence()
    p.go()
    p.done()


def fragment_written_then_go(p):
    p.s.fence()
    p.f[5, 1] = 0
    p.go(a=p.f)
    p.done()


def fragment_written_fence_go(p):
    p.f[5, 1] = 0
    p.s.fence()
    p.go(a=p.f)
    p.done()


def read_before_wait(p):
    p.s.fence()
    p.go()
    p.s.commit_group()
    p.d[...]
    p.s.wait_group(0)


def read_after_wait(p):
    with_fence(p)
    p.d[...]


def write_before_wait(p):
    p.s.fence()
    p.go()
    p.d[:, 3] = 1
    p.done()


def write_other_before_wait(p):
    p.s.fence()
    p.go()
    p.e[:, 3] = 1
    p.done()


def two_groups(p):
    p.s.fence()
    p.go(p.d)
    p.s.commit_group()
    p.go(p.e)
    p.done(1)


def read_newest(p):
    two_groups(p)
    p.e[...]
    p.s.wait_group(0)


def read_oldest(p):
    two_groups(p)
    p.d[...]
    p.s.wait_group(0)


def change_fragment_early(p):
    p.s.fence()
    p.go(a=p.f)
    p.f[0, 0] = 7
    p.done()


def change_fragment_late(p):
    p.s.fence()
    p.go(a=p.f)
    p.done()
    p.f[0, 0] = 7


def read_fragment_early(p):
    p.s.fence()
    p.go(a=p.f)
    p.f[0, 0]
    p.done()


def other_shape_pending(p):
    p.s.fence()
    p.go()
    p.go(name=N16)
    p.done()


def same_shape_pending(p):
    p.s.fence()
    p.go()
    p.go()
    p.done()


def other_shape_unfenced(p):
    with_fence(p)
    p.go(name=N16)
    p.done()


def other_shape_fenced(p):
    with_fence(p)
    p.s.fence()
    p.go(name=N16)
    p.done()


def accumulator_as_fragment(p):
    p.s.fence()
    p.go(p.e)
    p.go(p.d, a=p.e)
    p.done()


def accumulator_as_fragment_in_turn(p):
    p.s.fence()
    p.go(p.e)
    p.done()
    p.s.fence()
    p.go(p.d, a=p.e)
    p.done()


def accumulator_as_fragment_unfenced(p):
    p.s.fence()
    p.go(p.e)
    p.done()
    p.go(p.d, a=p.e)
    p.done()


def fragment_as_accumulator(p):
    p.s.fence()
    p.go(p.d, a=p.f)
    p.go(p.f)
    p.done()


def fragment_as_accumulator_unfenced(p):
    p.s.fence()
    p.go(p.d, a=p.f)
    p.done()
    p.go(p.f)
    p.done()


def fragment_as_accumulator_in_turn(p):
    p.s.fence()
    p.go(p.d, a=p.f)
    p.done()
    p.s.fence()
    p.go(p.f)
    p.done()


def store_without_proxy_fence(p):
    p.s.store(0, p.image)
    with_fence(p)


def store_with_proxy_fence(p):
    p.s.store(0, p.image)
    p.s.fence_proxy_async()
    with_fence(p)


def store_by_tma(p):
    p.s.store(0, p.image, proxy="async")
    with_fence(p)


def store_under_a_product(p):
    p.s.fence()
    p.go()
    p.s.store(p.b_at + 3, np.zeros(1, np.uint8))
    p.done()


def store_after_a_product(p):
    p.s.fence()
    p.go()
    p.done()
    p.s.store(p.b_at + 3, np.zeros(1, np.uint8))


def tma_under_a_product(p):
    p.s.fence()
    p.go()
    p.s.commit_group()
    p.s.store(0, np.zeros(16, np.uint8), proxy="async")
    p.s.wait_group(0)


def store_beside_a_product(p):
    p.s.fence()
    p.go()
    p.s.store(p.b_at + 128, np.zeros(16, np.uint8))  # the columns 8..15, which n8 does not read
    p.done()


def leave_uncommitted(p):
    p.s.fence()
    p.go()


def leave_pending(p):
    p.s.fence()
    p.go()
    p.s.commit_group()


def leave_after_waiting_for_nothing(p):
    p.s.fence()
    p.s.wait_group(0)
    p.go()
    p.s.wait_group(0)


def descriptors_differ(p):
    p.s.fence()
    w = p.b.encode()
    p.go(b=np.array([w, w, w + 8, w], np.uint64))
    p.done()


def descriptors_agree(p):
    p.s.fence()
    p.go(b=np.full(128, p.b.encode(), np.uint64))
    p.done()


def pattern_misaligned(p):
    p.s.fence()
    p.go(b=Descriptor(256, 16, 1024, swizzle="128B"))
    p.done()


def pattern_aligned(p):
    p.s.fence()
    p.go(b=Descriptor(32, 16, 1024, swizzle="128B"))
    p.done()


def pattern_with_base_offset(p):
    p.s.fence()
    p.go(b=Descriptor(256, 16, 1024, 2, "128B"))
    p.done()


PAIRS = [
    ("first-fence", no_fence, with_fence, "every register"),
    ("fence", write_then_go, write_fence_go, "d[2]"),
    ("fence", fragment_written_then_go, fragment_written_fence_go, "f[1]"),
    ("accumulator-read", read_before_wait, read_after_wait, "d[0]"),
    ("accumulator-write", write_before_wait, write_other_before_wait, "d[3]"),
    ("accumulator-read", read_newest, read_oldest, "e[0]"),
    ("fragment-write", change_fragment_early, change_fragment_late, "f[0]"),
    ("fragment-read", read_fragment_early, change_fragment_late, "f[0]"),
    ("shape-pending", other_shape_pending, same_shape_pending, "d[0]"),
    ("shape", other_shape_unfenced, other_shape_fenced, "d[0]"),
    ("accumulator-read", accumulator_as_fragment, accumulator_as_fragment_in_turn, "e[0]"),
    ("fence", accumulator_as_fragment_unfenced, accumulator_as_fragment_in_turn, "e[0]"),
    ("fragment-write", fragment_as_accumulator, fragment_as_accumulator_in_turn, "f[0]"),
    ("fence", fragment_as_accumulator_unfenced, fragment_as_accumulator_in_turn, "f[0]"),
    ("proxy-fence", store_without_proxy_fence, store_with_proxy_fence, "shared byte 0"),
    ("proxy-fence", store_without_proxy_fence, store_by_tma, "shared byte 0"),
    ("smem-pending", store_under_a_product, store_after_a_product, "shared byte 2051"),
    ("smem-pending", tma_under_a_product, store_beside_a_product, "shared byte 0"),
    ("exit-uncommitted", leave_uncommitted, with_fence, "d[0]"),
    ("exit-pending", leave_pending, with_fence, "d[0]"),
    ("exit-uncommitted", leave_after_waiting_for_nothing, with_fence, "d[0]"),
    ("descriptors", descriptors_differ, descriptors_agree, "descriptor B"),
    ("pattern", pattern_misaligned, pattern_aligned, "descriptor B"),
    ("pattern", pattern_misaligned, pattern_with_base_offset, "descriptor B"),
]
IDS = [f"{rule}:{broken.__name__}" for rule, broken, _, _ in PAIRS]


def run(program, **more):
    p = Program(**more)
    with p.s:
        program(p)
    return p


@pytest.mark.parametrize("rule, broken, correct, where", PAIRS, ids=IDS)
def test_pairs(rule, broken, correct, where):
    assert run(correct).s.hazards == []
    with pytest.raises(HazardError) as found:
        run(broken)
    assert f"[{rule}]" in str(found.value) and where in str(found.value)
    recorded = run(broken, check="record").s.hazards
    assert [h.rule for h in recorded] == [rule] and recorded[0].where == where
    assert f"instruction {recorded[0].instruction} " in str(found.value)
    assert run(broken, check=False).s.hazards == []


def test_warpgroups_start_at_multiples_of_four_warps():
    with pytest.raises(HazardError, match="warp 2"):
        run(with_fence, first_warp=2)
    run(with_fence, first_warp=4)


def test_message_names_instruction_and_register():
    with pytest.raises(HazardError) as found:
        run(read_newest)
    text = str(found.value)
    assert "e[0]" in text and "instruction 4," in text and "read of e" in text and "wait_group(0)" in text


def test_results_appear_when_waits_cover_them():
    p = Program(check=False)
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


def test_chains_in_one_group():
    p = Program()
    p.s.fence()
    for _ in range(3):
        p.go()
    p.done()
    assert (p.d[...].view(np.float32) == 48).all()


def test_uncommitted_products_outlast_waits():
    p = Program(check=False)
    p.s.fence()
    p.go()
    p.s.wait_group(0)
    assert (p.d[...] == 0).all()
    p.done()
    assert (p.d[...] == ONES).all()


def test_stale_shared_memory():
    """Without the proxy fence the tensor core sees the old bytes; ordinary loads see the new ones."""
    p = Program(check=False)
    p.s.store(0, np.zeros(p.b_at, np.uint8))
    assert (p.s.load(0, p.b_at) == 0).all()
    with_fence(p)
    assert (p.d[...] == ONES).all()
    p.s.fence_proxy_async()
    p.go(scale_d=0)
    p.done()
    assert (p.d[...] == 0).all()


def test_operands_are_read_when_issued():
    p = Program(check=False)
    p.s.fence()
    p.go(a=p.f)
    p.f[...] = 0
    p.s.store(p.b_at, np.zeros(256, np.uint8), proxy="async")
    p.done()
    assert (p.d[...] == ONES).all()


def test_batches_in_step():
    p = Program()
    s = Sequence(np.stack([p.image, np.zeros_like(p.image)]))
    d = s.registers(4, "d")
    with s:
        s.fence()
        s.wgmma(N8, d, p.a, p.b)
        s.commit_group()
        s.wait_group(0)
    got = d[...]
    assert got.shape == (2, 128, 4) and (got[0] == ONES).all() and (got[1] == 0).all()


def test_functions_forward():
    p = Program()
    fence(p.s)
    p.go()
    commit_group(p.s)
    wait_group(0, p.s)
    fence_proxy_async(p.s)
    assert (p.d[...] == ONES).all()
    fence(), commit_group(), wait_group(3), fence_proxy_async()  # from Python nothing is pending


def test_an_exception_is_not_hidden_by_the_exit():
    with pytest.raises(ZeroDivisionError), Program().s as s:
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
        (ShapeError, lambda: Program().go(b=np.zeros(3, np.uint64))),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as found:
        call()
    assert len(str(found.value)) >= 40
