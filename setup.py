"""What pyproject.toml cannot say: the C kernels, and the README as a package page shows it.

The kernels are compiled against the limited API of Python 3.10, so that one wheel serves every
later version (cp310-abi3). Without a C compiler the package installs, and runs, without them.
"""

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

REPOSITORY = "https://github.com/maccal/maccal"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")

# Free-threaded Python has no limited API: there the kernels are built for that version alone
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

KERNELS = Extension(
    "maccal.metrics._kernels",
    ["maccal/metrics/_kernels.c"],
    depends=["maccal/metrics/_softmax.h", "maccal/metrics/_lanes.h"],
    # no value changes: without traps a choice between two numbers can be made in a vector
    extra_compile_args=["-O3", "-fopenmp-simd", "-fno-trapping-math", "-fno-math-errno"],
    define_macros=[("Py_LIMITED_API", "0x030A0000")] if LIMITED else [],
    py_limited_api=LIMITED,
    libraries=[] if os.name == "nt" else ["m"],  # log; not to rely on the interpreter's own
    optional=True,
)


def absolute(link: re.Match[str]) -> str:
    """A link to a file of the repository; a picture's leads to its bytes."""
    picture, text, path = link.groups()
    home = f"{REPOSITORY}/raw/main" if picture else f"{REPOSITORY}/blob/main"
    return f"{picture}[{text}]({home}/{path})"


def readme() -> str:
    """README.md whose relative links also work away from the repository."""
    return LINK.sub(absolute, Path(__file__).with_name("README.md").read_text("utf-8"))


if __name__ == "__main__":
    setup(
        ext_modules=[KERNELS],
        options={"bdist_wheel": {"py_limited_api": "cp310"}} if LIMITED else {},
        long_description=readme(),
        long_description_content_type="text/markdown",
    )
