"""Forms that stand for several devices, for launches that have not begun, and for memory beyond the GPU's caches."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

HEAD = ".version 9.1\n.target sm_100a\n.address_size 64\n"
LANE = """ .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .b128 %x<3>; .reg .pred %p<3>; .reg .v4 .b32 v;
 ld.param.u64 %d9, [out]; mov.u32 %r9, %tid.x; mul.wide.u32 %d8, %r9, 4; add.u64 %d9, %d9, %d8;"""


def run(body, words=32, grid=1, given=None, **options):
    out = np.zeros(words, np.uint32) if given is None else given.view(np.uint32).copy()
    nbtc.load(f"{HEAD}.visible .entry k(.param .u64 out) {{{LANE}{body} ret; }}")["k"].launch(
        grid, 32, (out,), **options
    )
    return out


def test_memory_of_one_device_is_its_own_multicast_address():
    given = np.arange(32, dtype=np.uint32)
    body = """multimem.ld_reduce.relaxed.gpu.global.add.u32 %r1, [%d9]; add.u32 %r1, %r1, 5;
 multimem.st.release.sys.global.u32 [%d9], %r1; multimem.red.global.max.s32 [%d9], 20;
 multimem.red.relaxed.gpu.xor.b32 [%d9], %r9;"""
    np.testing.assert_array_equal(run(body, given=given), np.maximum(given + 5, 20) ^ given)


@pytest.mark.parametrize(("kind", "dtype", "count"), [("f16", np.float16, 8), ("f32", np.float32, 4)])
def test_vectors_of_several_devices(kind, dtype, count):
    given = np.random.default_rng(2).standard_normal(32 * count).astype(dtype)
    size, name = dtype().itemsize, "h" if kind == "f16" else "r"
    values = ", ".join(f"%{name}{20 + n}" for n in range(count))
    body = f"""mul.lo.u32 %r1, %r9, {count * size - 4}; cvt.u64.u32 %d1, %r1; add.u64 %d9, %d9, %d1;
 multimem.ld_reduce.add.v{count}.{kind} {{{values}}}, [%d9]; multimem.red.add.v{count}.{kind} [%d9], {{{values}}};"""
    np.testing.assert_array_equal(run(body, given=given).view(dtype), given + given)


def test_orders_of_several_devices_need_a_scope():
    with pytest.raises(ProgramError, match="ld_reduce"):
        run("multimem.ld_reduce.relaxed.global.add.u32 %r1, [%d9];")
    with pytest.raises(ProgramError, match="red"):
        run("multimem.red.weak.add.u32 [%d9], %r1;")


CONTROL = """ .shared .align 16 .b128 answer; .shared .align 8 .b64 bar; mov.u32 %r2, 0; setp.eq.u32 %p1, %r9, 0;
 mov.u32 %r3, %ctaid.x; mul.wide.u32 %d1, %r3, 128; add.u64 %d9, %d9, %d1;
 @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
 AGAIN: atom.global.add.u32 %r4, [%d9], 1; @!%p1 bra WAIT; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [answer], [bar];
 WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], %r2; @!%p2 bra WAIT;
 ld.shared.b128 %x1, [answer]; bar.sync 0; xor.b32 %r2, %r2, 1;
 clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %x1; @!%p2 bra END;
 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r3, %r5, %r6, _}, %x1;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r7, %x1;
 ld.param.u64 %d9, [out]; add.u64 %d9, %d9, %d8; mul.wide.u32 %d1, %r3, 128; add.u64 %d9, %d9, %d1; bra AGAIN; END:"""


def test_work_of_blocks_that_have_not_begun_is_done_once():
    np.testing.assert_array_equal(run(CONTROL, words=32 * 50, grid=50), np.ones(32 * 50))


def test_a_block_gets_the_work_of_one_that_has_not_begun():
    body = CONTROL.replace("atom.global.add.u32 %r4, [%d9], 1;", "mov.u32 %r4, %ctaid.x; st.global.u32 [%d9], %r4;")
    by = run(body, words=32 * 50, grid=50, threads=1).reshape(50, 32)
    assert (by == by[:, :1]).all()
    assert len(set(by[:, 0])) < 25


@pytest.mark.parametrize("checked", [False, True])
def test_clusters_get_the_work_of_whole_clusters(checked):
    body = """ .shared .align 16 .b128 answer; .shared .align 8 .b64 bar; mov.u32 %r2, 0; setp.eq.u32 %p1, %r9, 0;
 mov.u32 %r3, %ctaid.x; mov.u32 %r8, %cluster_ctarank; setp.eq.and.u32 %p2, %r8, 0, %p1;
 @%p1 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
 barrier.cluster.arrive; barrier.cluster.wait;
 AGAIN: ld.param.u64 %d9, [out]; mul.wide.u32 %d1, %r3, 4; add.u64 %d9, %d9, %d1; @%p1 red.global.add.u32 [%d9], 1;
 @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; barrier.cluster.arrive; barrier.cluster.wait; @!%p2 bra WAIT;
 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128
   [answer], [bar];
 WAIT: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p0, [bar], %r2; @!%p0 bra WAIT;
 ld.shared.b128 %x1, [answer]; fence.proxy.async; xor.b32 %r2, %r2, 1; barrier.cluster.arrive; barrier.cluster.wait;
 clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, %x1; @!%p0 bra END;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r3, %x1; add.u32 %r3, %r3, %r8; bra AGAIN; END:"""
    found = run(body, words=32, grid=24, cluster=2, checked=checked)
    np.testing.assert_array_equal(found, [1] * 24 + [0] * 8)


def test_stores_and_reductions_without_an_mbarrier():
    body = """cvt.u64.u32 %d1, %r9; st.async.mmio.release.sys.global.u32 [%d9], %r9; bar.sync 0;
 ld.param.u64 %d2, [out]; red.async.mmio.release.sys.global.add.s64 [%d2+128], %d1;
 red.async.mmio.release.sys.max.u32 [%d2+136], %r9; red.async.mmio.release.sys.global.inc.u32 [%d2+140], 7;"""
    found = run(body, words=36)
    np.testing.assert_array_equal(found, [*range(32), 31 * 16, 0, 31, 0])


def test_vectors_of_registers_and_of_indices():
    body = """mov.v4.u32 v, %ntid; mov.v4.u32 {%r1, %r2, %r3, %r4}, v; mov.v2.u32 {%r5, %r6}, {%r2, %r1};
 mov.v2.b64 {%d1, %d2}, {%d9, %d8}; mov.u32 %r7, %ctaid.w; mov.u32 %r8, %nctaid.w; mad.lo.u32 %r1, %r6, 100, %r4;
 mad.lo.u32 %r1, %r8, 10, %r1; add.u32 %r1, %r1, %r7; st.global.u32 [%d1], %r1;"""
    np.testing.assert_array_equal(run(body), np.full(32, 3200))


def test_vectors_are_moved_element_by_element():
    with pytest.raises(ProgramError, match="a vector of 2 where the form has a vector of 4"):
        run("mov.v4.u32 {%r1, %r2}, {%r3, %r4};")


def test_comparisons_of_halves_give_ones_of_the_other_format():
    body = """mov.b16 %h1, 0x3c00; mov.b16 %h2, 0x4000; set.lt.bf16.f16 %h3, %h1, %h2; cvt.u32.u16 %r1, %h3;
 st.global.u32 [%d9], %r1;"""
    np.testing.assert_array_equal(run(body), np.full(32, 0x3F80))
