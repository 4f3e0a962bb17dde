"""Building a workload's model and its random batches: layer lists, Hugging Face configs, the user's own Python."""
