"""One kernel before its code: linked, contracted, its control flow and what is the same in all lanes."""
