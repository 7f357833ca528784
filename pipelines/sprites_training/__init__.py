"""Training of the bundled "sprites" model; nothing here is needed to run it."""
