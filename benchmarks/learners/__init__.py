"""Learners side by side, and options of ours on and off."""
