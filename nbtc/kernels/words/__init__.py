"""Products of integers, bits and f64: panels of words, and dot products of one word."""
