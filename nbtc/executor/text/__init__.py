"""PTX text to frozen data: tokens, declarations, instructions with their operands."""
