"""The order in which blocks take the tiles of a product."""

from __future__ import annotations

import nbtc

BAND = 16  # rows of tiles that run together, so that what runs at once shares tiles of a and b in the L2 cache


@nbtc.device
def place(tile, rows, columns):
    """Row and column of a tile: bands of BAND rows of tiles, each walked column by column."""
    band = tile // (BAND * columns)
    height = min(rows - band * BAND, BAND)
    within = tile % (BAND * columns)
    return band * BAND + within % height, within // height
