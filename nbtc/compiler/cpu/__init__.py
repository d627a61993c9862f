"""The processor: what it can do, and which instructions do it."""
