"""C's library of mathematical functions, in the dialect itself."""
