"""The shared implementation of the port: one schema of a PostgreSQL database for a library.

A commit takes an advisory lock of its library; readers and the journal's writers take none. Each
query names its schema, so that a pooler of connections may stand in between. What `commit` returned
is on the server's disk (`synchronous_commit`).
"""
