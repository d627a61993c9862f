"""Exchange, reduction, vote and match between lanes."""
