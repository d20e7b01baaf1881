"""What an agent may use: Python in a sandbox, search, and visit; others come over MCP."""
