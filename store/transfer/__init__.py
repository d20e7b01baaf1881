"""Versions between stores: clone, push, pull and bundles, over files and SSH."""
