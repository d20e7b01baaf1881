"""The project around the store that is shown: its settings, its prices, its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.project import Project, open_project
from tfgrpo.store.find import project_root

if TYPE_CHECKING:
    from tfgrpo.ui.visit import Visit


def project_of(visit: Visit) -> Project:
    """Returns the project of the store that is shown. Raises SettingsError."""
    return open_project(project_root(visit.site.settings.store))
