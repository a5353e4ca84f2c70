"""The model's own side: its shadow, its modules, and where its layers begin and end."""
