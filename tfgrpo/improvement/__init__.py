"""From what went wrong in production to a better library: problems from traffic, a training on a
branch, a proposal with its evidence, and whether a library still helps on another model."""
