"""tfgrpo."""
