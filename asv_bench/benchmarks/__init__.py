"""asv benchmarks of nbtc.

Every number is a cost, so that a smaller one is better everywhere, as `asv compare` and the published pages take it:
seconds of an operation, bytes, or seconds relative to NumPy's.  Rates are a division away.
"""
