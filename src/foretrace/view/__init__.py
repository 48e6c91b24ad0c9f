"""Traces seen elsewhere: served to the Perfetto UI from this machine, cut to what it can take, annotated, shared."""
