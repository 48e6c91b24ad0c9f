"""Facts about the world, as data with their source: names, rates, costs, rules, thresholds."""
