"""Ways a library reaches programs that are not asked to change: over MCP, and as a file."""
