"""Whether what came in somebody else's folder may run code or send something away."""
