"""Scripts of the race, one for each learner: each runs in an environment of its own."""
