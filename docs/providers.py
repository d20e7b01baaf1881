"""Writes the settings for each provider into docs/models.md, from the table that the tests use.

python docs/providers.py
"""

from __future__ import annotations

from pathlib import Path

from tfgrpo.model.providers import PROVIDERS, Provider, settings_toml

PAGE = Path(__file__).with_name("models.md")
BEFORE = "### "
AFTER = "## Several endpoints"


def written(page: str) -> str:
    """Returns the page with the blocks of the table between its text before and after."""
    start, end = page.index("## Settings for each provider"), page.index(AFTER)
    head = page[start:end].partition(BEFORE)[0].rstrip()
    blocks = "\n".join(markdown(provider) for provider in PROVIDERS)
    return f"{page[:start]}{head}\n\n{blocks}\n{page[end:]}"


def markdown(provider: Provider) -> str:
    """A provider's part of `docs/models.md`."""
    steps = [f"`{provider.start}`"] if provider.start else []
    steps += [f"`export {provider.key}=…`"] if provider.key else []
    told = f"{', '.join(steps)}. {provider.note} ([documentation]({provider.source}))"
    lines = [f"### {provider.title}", "", told, ""]
    lines += ["```toml", settings_toml(provider.settings).rstrip(), "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
