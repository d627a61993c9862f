"""Products whose operands have a scale a block."""
