"""What is decided about libraries in production: experiments, promotions and rollbacks.

experiment.py (what is on record of one) → evidence.py (what its calls say) → verdict.py (what
follows); rollback.py for incidents. The proxy asks `arm_of_subject.py` who gets which arm.
"""
