"""The shared implementation of the port: one schema of a PostgreSQL database for a library.

Several libraries lie in one database, several machines write to one library. A commit takes an
advisory lock of its library, as a writer of a file takes the file's; readers and the writers of
the journal take none. Each query names its schema, so that a pooler of connections may stand in
between. psycopg is imported by this folder alone.

Durability: what `commit` returned is on the server's disk (`synchronous_commit`, as the server
is set up).
"""
