"""Training: objectives write token trees, the trainer turns them into weights."""
