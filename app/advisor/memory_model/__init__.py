"""How much memory a workload takes, whether it fits, and what would make it fit."""
