"""The prompts, one Markdown file each. `tfgrpo.templates` reads them."""
