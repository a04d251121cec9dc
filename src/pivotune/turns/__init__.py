"""Sampling at turns and over episodes, profiles of turns, and the choice of pivots.

Two verbs do all sampling: `rollout.sample_groups` (one action at each of many states) and
`rollout.run_episodes` (tasks played to their end).
"""
