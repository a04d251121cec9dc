"""Tool use over stateful services: BFCL v4's multi-turn tasks (optional extra `tools`)."""
