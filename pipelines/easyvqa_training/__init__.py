"""Training of the easy-VQA model: pictures, tower, decoder, and both as one checkpoint."""
