"""Out-of-memory messages: found in a pasted text, and explained."""
