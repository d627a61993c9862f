"""tcgen05: tensor memory, its moves, and the products of the sm_100 family."""
