"""Other loaders, each used as its own documentation recommends: `write(path, samples)` and `epochs(path, batch)`."""
