"""One file per publisher's format."""
