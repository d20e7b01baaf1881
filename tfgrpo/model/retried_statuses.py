"""The HTTP statuses after which a request is tried again, and which of them are limits."""

from __future__ import annotations

TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LIMITS = frozenset({429, 503, 529})
OVERLOADED = (408, 429, 502, 503, 504, 529)
"""What a server answers that another try may help with, whatever it speaks of."""
