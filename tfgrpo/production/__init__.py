"""What is decided about libraries in production: experiments, promotions and rollbacks.

experiment.py (an experiment's record) → experiment_evidence.py (the evidence of its calls) →
experiment_end.py (the automatic decision); rollback.py for incidents.
"""
