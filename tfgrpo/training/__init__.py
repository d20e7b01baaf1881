"""The training loop and its parts: rollouts, reflection, controller, gate, credit, estimates."""
