"""Kernels scheduled by hand for Hopper, in Gluon; see `foretrace.fused.kernels.hopper.pipeline` for their plan."""
