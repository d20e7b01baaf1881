"""Families of problems to measure learning with: generators, a lookup, headroom, trained cells."""
