"""What ``benchmarks/fused.py`` is made of; one idea a file."""
