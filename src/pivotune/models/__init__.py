"""Everything that sees token ids: policy, chat templates, token trees, samplers.

The package itself loads no torch; its modules do (except `scripted` and `trees`).
"""
