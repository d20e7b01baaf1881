"""The embedded implementation of the port: one SQLite file in WAL mode.

sqlite-utils makes and migrates the schema, and is imported only for that. With `synchronous = FULL`
a version that `commit` returned is on the disk, at the price of one fdatasync.
"""
