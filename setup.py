"""Everything but the C kernels is in pyproject.toml. Without a C compiler the package installs, and runs, without them."""

from setuptools import Extension, setup

KERNELS = Extension(
    "maccal.metrics._kernels", ["maccal/metrics/_kernels.c"], extra_compile_args=["-O3", "-fopenmp-simd"], optional=True
)

setup(ext_modules=[KERNELS])
