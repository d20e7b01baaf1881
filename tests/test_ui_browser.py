"""The pages in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ui_rig import chromium as chromium
from ui_rig import serving, store_at, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_the_first_page_is_seen_without_a_complaint(chromium: Browser, tmp_path: Path) -> None:
    store = store_at(tmp_path, "Count both days.")
    with serving(store) as url, watched(chromium) as page:
        page.goto(url)
        assert page.inner_text("h1") == "Home"
        assert "token" not in page.url
