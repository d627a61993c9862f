"""One launch: arguments, workers, answers to what a program asks, and what went wrong in words."""
