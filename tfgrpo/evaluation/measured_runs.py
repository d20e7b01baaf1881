"""Which runs measure effects of experiences. Nothing heavy is imported, since `tfgrpo log` uses it
too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfgrpo.store.activity.runs import Run


def measures(run: Run) -> bool:
    """Whether the attempts of a run were shown a random part of what there was."""
    return bool(run.config.get("policy", "paper") != "paper")
