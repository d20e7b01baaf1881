"""What SQLite and PostgreSQL do alike, in the SQL that both understand.

A query has `?` for a value and `@.` before a table. What the two write differently is a `Dialect`.
"""
