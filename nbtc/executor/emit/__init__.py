"""What every row's emitter is written in: rows, values, lanes, the machine's structures."""
