"""Which kernels operators become on a GPU: eager ATen on CUDA, and what Inductor generates and fuses."""
