"""What `@njit` functions see: nbtc's instructions as overloads."""
