"""The GPU kernels. The only place that imports Triton, and imported only when one of them is to run."""
