"""What computes whole products: engines for every kind of arithmetic, and the operands' memory that they share."""
