"""A library as text: in prompts, and as Markdown that a person edits."""
