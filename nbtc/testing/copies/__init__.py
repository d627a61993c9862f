"""Random programs that move data in every asynchronous way there is, and what they come to, by NumPy alone."""
