"""Short scripts to copy. A package, as a peer of ours installs one of the same name."""
