"""Domains: tasks, an environment, an expert and verifiers of their own; one folder each."""
