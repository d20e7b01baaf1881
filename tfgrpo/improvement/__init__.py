"""From calls that went wrong in production to a better library: problems from traffic, a training
on a branch, a proposal with its evidence, and a check whether a library still helps on another
model."""
