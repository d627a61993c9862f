"""Products of one warp, as vector code on its register images."""
