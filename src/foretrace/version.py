"""The version, in a file of its own so that any room can name it without loading the package's public names."""

__version__ = "0.1.0"
