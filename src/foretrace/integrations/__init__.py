"""foretrace inside other programs: pytest, notebooks, trainers, and agents over the Model Context Protocol."""
