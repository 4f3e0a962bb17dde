"""Over the batch and the width: curves, crossovers between plans, who wins where."""
