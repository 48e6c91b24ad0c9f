"""The data every room shares: the report and its parts, the side file, and their JSON Schemas."""
