"""Gradients of the fused layers: what forward keeps, and how backward uses it and lets it go early."""
