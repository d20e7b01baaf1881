"""What is decided about libraries in production: experiments, promotions and rollbacks.

experiment.py (what is on record of one) → experiment_evidence.py (what its calls say) →
experiment_end.py (what follows); rollback.py for incidents.
"""
