"""How good are the answers, how fast is the service; against baselines, side by side."""
