"""Tables larger than memory: rows in a file, some of them cached in front of the kernels that look up and update."""
