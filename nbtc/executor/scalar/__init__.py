"""Rows that work on one lane at a time: integers, floats, conversions."""
