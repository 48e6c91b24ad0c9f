"""foretrace in a notebook: ``%load_ext foretrace``, then ``%%foretrace`` on top of a cell."""
