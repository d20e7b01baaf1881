"""What a run learns: steps, candidates, effects, the gate and the loop."""
