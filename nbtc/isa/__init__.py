"""Which instructions exist: declarations only, no compiled code."""
