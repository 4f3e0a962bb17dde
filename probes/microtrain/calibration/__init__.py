"""Parts of a calibration: whole micro-networks and the operations inside their steps, on CPU and device."""
