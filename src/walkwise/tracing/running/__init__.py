"""Running the model: its shadow, its modules, and where its layers begin and end."""
