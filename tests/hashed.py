"""Operands of recordings: numbers that are made anew wherever they are needed, by a hash of an element's index."""

import numpy as np


def hashed_words(index, seed):
    """32 bits for each index, an array or tensor of int64."""
    h = (index * 0x9E3779B1 + seed * 0x7FEB352D + 12345) & 0xFFFFFFFF
    for shift, factor in ((15, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = ((h ^ (h >> shift)) * factor) & 0xFFFFFFFF
    return h ^ (h >> 16)


def hashed_floats(index, seed):
    """float32 numbers that tf32 does not hold."""
    return (hashed_words(index, seed).astype(np.int64) - 2**31).astype(np.float32) * np.float32(2.0**-31)
