"""A warp's slice of a warpgroup product: sixteen rows, eight columns at a time."""
