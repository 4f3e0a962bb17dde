"""What kernels take inside while they run: asked of the kernels, for a trace's peak and its simulated heap."""
