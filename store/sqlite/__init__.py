"""The embedded implementation of the port: one SQLite file in WAL mode.

sqlite-utils makes and migrates the schema and is imported only when there is something to make
or migrate. Nothing outside this folder knows that there is SQL, but for `opening.py`, which
chooses this implementation.

Durability: `synchronous = FULL`, so a version that `commit` returned is on the disk, at the
price of one fdatasync.
"""
