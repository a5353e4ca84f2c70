"""How well explainers find the nodes that decide, on many tasks and models: the evidence for the default rule."""
