"""Matrices between memory and the lanes of a warp."""
