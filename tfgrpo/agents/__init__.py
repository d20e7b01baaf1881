"""Agents of the user's: whatever answers a problem, as it is.

    problem → function_agent.py or command_agent.py → gateway.py → the model's endpoint

Each attempt has an address on loopback of its own, through which its calls pass: the attempt's
library goes in, and every call is paced, counted and kept like those of our own loop. A `Domain`
gets such a rollout in `agent_attempts.py`; training and evaluation know nothing else of agents.
"""
