"""asv benchmarks of nbtc."""
