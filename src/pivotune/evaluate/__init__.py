"""Scores of a policy on suites of tasks, and the statistics over them."""
