"""How well explainers find the nodes that decide, over many tasks, models and seeds: the evidence for the default rule."""
