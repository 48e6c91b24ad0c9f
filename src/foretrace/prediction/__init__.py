"""What a trace should hold: expectations and their checker, and the predictor that writes them without a GPU."""
