"""How nbtc turns Python into machine code and runs it: jit, vector builder, host features, threads, buffer pools."""
