"""Generative tasks of lm-eval by name, where the package and a task's data can be had."""
