"""Tables larger than memory. Rows are in a file, and a cache of them serves the kernels that look up and update."""
