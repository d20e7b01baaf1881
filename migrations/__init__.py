"""The schema's history.

`SCHEMA` is the number that a store file carries in `PRAGMA user_version` once every migration
in `migrations.py` has run. It stands here, apart from them, so that opening an up-to-date store
costs one pragma and not the import of sqlite-utils.
"""

SCHEMA = 5
APPLICATION_ID = 0x74666772  # "tfgr", in PRAGMA application_id: says whose file this is
