"""Parts of measuring: a contest of plans, each in a process of its own, and what a step's overheads are."""
