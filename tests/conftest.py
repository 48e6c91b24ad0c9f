"""Shared by all tests; its place puts ``tests/`` on the import path, so that they can ``from builders import …``."""
