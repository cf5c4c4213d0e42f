"""Scripts to copy. A package, so that an `examples` that another package installs (netcal's does)
does not take its place.
"""
