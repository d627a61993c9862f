"""Slots of the table of pointers to the host's functions, which a launch hands its program."""

from __future__ import annotations

WORD_BYTES = (4, 8)  # the first slots: the general product of multiplicands in words of so many bytes
TILE_COPY = len(WORD_BYTES)
REDUCE_ELEMENTS = TILE_COPY + 1
TEXTURE = REDUCE_ELEMENTS + 1
WATCH = TEXTURE + 1  # of the checked mode's first function
# how many 64-bit words each function of the checked mode takes (in the order of `watch.service.KERNELS`)
WATCH_WORDS = (8, 6, 7, 7, 8, 8, 5)
TEXTURE_TABLE = -1  # no function: the word before them is the address of the table of textures and surfaces
