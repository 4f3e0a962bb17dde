"""How long a step takes: predicted from profile and trace, measured, carried from batch to batch, with intervals."""
