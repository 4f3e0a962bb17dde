"""Parts of tracing: one step under fake tensors, watched operation by operation."""
