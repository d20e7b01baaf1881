"""One attempt at a problem: one answer, an agent with tools, or a branch of another attempt."""
