"""The order in which blocks take the tiles of a product."""

from __future__ import annotations

import nbtc

BAND = 16  # rows of tiles that run together, so that what runs at once shares tiles of a and b in the L2 cache


@nbtc.device
def place(tile, rows, columns, most=BAND):
    """Row and column of a tile: bands of `most` rows of tiles, each walked column by column."""
    band = tile // (most * columns)
    height = min(rows - band * most, most)
    within = tile % (most * columns)
    return band * most + within % height, within // height
