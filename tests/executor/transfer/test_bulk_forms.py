"""Bulk copies as programs: columns of pixels, and lines under a mask."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

HEAD = """.version 9.1
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .align 64 .b8 other[128], .param .u64 out) {
 .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b16 %h<4>; .reg .pred %p<3>;
 .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar;
 mov.u64 %d1, map; cvta.param.u64 %d1, %d1; mov.u64 %d2, other; cvta.param.u64 %d2, %d2; ld.param.u64 %d3, [out];
 mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
 mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
"""
WAIT = " L: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra L;\n"
LOAD = "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"


def run(body, source, target, out):
    nbtc.load(f"{HEAD}{body} END: ret; }}")["k"][1, 32](source, target, out)


def test_pixels_move_between_images():
    """A filter's tap (1, 0) of a column of 32 pixels, stored as the pixels of another image."""
    images = np.arange(2 * 5 * 5 * 8, dtype=np.uint32).reshape(2, 5, 5, 8)
    found = np.zeros((1, 8, 4, 8), np.uint32)
    source = nbtc.TensorMap.im2col(images, (0, 0), (-1, -1), channels=8, pixels=32)
    target = nbtc.TensorMap.im2col(found, (0, 0), (0, 0), channels=8, pixels=32)
    body = f"""mov.u32 %r2, 0; mov.u16 %h1, 1; mov.u16 %h2, 0;
 cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%d1, {{%r2, %r2, %r2, %r2}}], {{%h1, %h2}};
 {LOAD} [s], [%d1, {{%r2, %r2, %r2, %r2}}], [bar], {{%h1, %h2}};
{WAIT} cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%d2, {{%r2, %r2, %r2, %r2}}], [s];
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    run(body, source, target, np.zeros(4, np.uint32))
    np.testing.assert_array_equal(found.reshape(2, 4, 4, 8), images[:, :4, 1:5])


def test_a_tile_copy_takes_no_map_of_pixels():
    images = np.zeros((2, 5, 5, 8), np.uint32)
    columns = nbtc.TensorMap.im2col(images, (0, 0), (0, 0), channels=8, pixels=32)
    tile = LOAD.replace("im2col", "tile")
    with pytest.raises(ProgramError, match="another mode"):
        run(f"mov.u32 %r2, 0; {tile} [s], [%d1, {{%r2, %r2, %r2, %r2}}], [bar];", columns, columns, images)


@pytest.mark.parametrize(
    ("x", "y", "stores", "why"),
    [
        (-8, -1, False, None),
        (2, 0, False, "no multiple of 16"),
        (4, 0, True, "no multiple of 16"),
        (-8, 0, True, "below 0"),
        (0, -1, True, "below 0"),
    ],
)
def test_where_a_tile_may_begin(x, y, stores, why):
    """Of float16; Gluon's tutorial of gathers (09) tells of the same, which GPUs end as illegal instructions."""
    half = nbtc.TensorMap(np.zeros((8, 16), np.float16), (8, 2))
    place = f"mov.b32 %r2, {x}; mov.b32 %r3, {y};"
    load = LOAD.replace("im2col", "tile").replace("4d", "2d")
    copy = f"{load} [s], [%d1, {{%r2, %r3}}], [bar];"
    if stores:
        copy = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {%r2, %r3}], [s];"
    if why is None:
        run(place + copy, half, half, np.zeros(4))
    else:
        with pytest.raises(ProgramError, match=why) as told:
            run(place + copy, half, half, np.zeros(4))
        assert "address" not in str(told.value)


def test_offsets_are_as_many_as_the_images_have_dimensions():
    columns = nbtc.TensorMap.im2col(np.zeros((2, 5, 5, 8), np.uint32), (0, 0), (0, 0), channels=8, pixels=32)
    with pytest.raises(ProgramError, match="takes 2 offsets"):
        run(
            f"mov.u32 %r2, 0; mov.u16 %h1, 0; {LOAD} [s], [%d1, {{%r2, %r2, %r2, %r2}}], [bar], {{%h1}};",
            columns, columns, np.zeros(4),
        )  # fmt: skip


@pytest.mark.parametrize("mask", [0, 1, 0x8421, 0x7FFE, 0xFFFF])
def test_lines_under_a_mask(mask):
    """Bit i of the mask is byte i of every 16."""
    out, tile = np.full(64, 0xEE, np.uint8), nbtc.TensorMap(np.zeros((4, 8), np.uint32), (8, 1))
    body = f"""st.shared.v4.u32 [s], {{0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C}};
 st.shared.v4.u32 [s+16], {{0x13121110, 0x17161514, 0x1B1A1918, 0x1F1E1D1C}}; mov.u16 %h1, {mask};
 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d3], [s], 32, %h1;
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    run(body, tile, tile, out)
    kept = np.array([mask >> (n % 16) & 1 for n in range(32)], bool)
    np.testing.assert_array_equal(out, np.r_[np.where(kept, np.arange(32), 0xEE), np.full(32, 0xEE)])
