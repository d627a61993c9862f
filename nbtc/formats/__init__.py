"""Number formats: one row each (`table`), their bits (`codec`), and arrays of them (`arrays`)."""
