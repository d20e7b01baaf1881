"""The schema's history.

`SCHEMA` is the number that a store file carries in `PRAGMA user_version` once every migration
in `migrations.py` has run. It stands here, apart from them, so that opening an up-to-date store
costs one pragma and not the import of sqlite-utils.
"""

SCHEMA = 5
APPLICATION_ID = 0x74666772  # "tfgr", in PRAGMA application_id: says whose file this is
DIGEST = "7e0347a0e853b3d8e2748bdc2619f05f3fd0c2dcda6acb26a588fd65e0963e46"
"""The digest of their schema, as `store/sqlite/checks.py` computes it: a test says which it is."""
