"""One run from traces to report: the recipe, the run folder, and the flow that wires the rooms."""
