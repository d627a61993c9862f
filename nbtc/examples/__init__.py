"""Worked examples: programs built on nbtc, each beside the same thing in plain NumPy."""
