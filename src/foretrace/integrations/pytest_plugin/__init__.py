"""The pytest plugin: what a test runs on the GPU is held against what it says."""
