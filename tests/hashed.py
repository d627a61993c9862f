"""Operands of recordings: numbers that are made anew wherever they are needed, by a hash of an element's index."""


def hashed_words(index, seed):
    """32 bits for each index, an array or tensor of int64."""
    h = (index * 0x9E3779B1 + seed * 0x7FEB352D + 12345) & 0xFFFFFFFF
    for shift, factor in ((15, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = ((h ^ (h >> shift)) * factor) & 0xFFFFFFFF
    return h ^ (h >> 16)
