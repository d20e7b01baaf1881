"""Everything between a request and its answer: endpoint, client, throttle, budget, prices."""
