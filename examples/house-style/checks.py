"""What the rubric cannot say as a rule."""

import re


def names_the_order(problem, response):
    """Returns whether the reply names the order that the message is about."""
    order = re.search(r"\b\d{4}\b", problem.problem)
    return order is not None and order[0] in response
