"""One file per store that is measured, each with the same few methods (`peer.py`)."""
