"""What tokens cost, and what was spent."""
