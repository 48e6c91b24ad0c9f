"""Its place puts ``tests/fused/`` on the import path, for ``from interpreter import …``."""
