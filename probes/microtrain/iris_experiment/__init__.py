"""Parts of the experiment everybody has run: the iris network, its data and its epochs."""
