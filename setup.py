"""Everything but the C kernels is in pyproject.toml.

Without a C compiler the package installs, and runs, without them.
"""

from setuptools import Extension, setup

KERNELS = Extension(
    "maccal.metrics._kernels",
    ["maccal/metrics/_kernels.c"],
    depends=["maccal/metrics/_softmax.h", "maccal/metrics/_lanes.h"],
    # no value changes: without traps a choice between two numbers can be made in a vector
    extra_compile_args=["-O3", "-fopenmp-simd", "-fno-trapping-math", "-fno-math-errno"],
    optional=True,
)

setup(ext_modules=[KERNELS])
