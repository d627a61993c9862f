"""All rows in tables: found by an instruction's text, with what each reads and writes."""
