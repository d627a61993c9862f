"""Benchmarks that versions before this one can run too: `asv --config older.json`, then `asv compare`."""
