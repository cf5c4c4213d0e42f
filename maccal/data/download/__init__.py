"""Downloads that resume, archives that cannot harm, checksums that are remembered."""
