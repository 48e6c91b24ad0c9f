"""One tool a file: the function a client calls, and the types of its answer."""
