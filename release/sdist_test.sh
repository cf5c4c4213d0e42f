#!/usr/bin/env bash
# The sdist passes its own tests: built, unpacked elsewhere, installed with its development tools in an
# empty environment, tested there.
#
#     release/sdist_test.sh               a few minutes, and gigabytes of packages
#     release/sdist_test.sh -m "not slow" words for pytest
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/builder"
"$work/builder/bin/pip" install --quiet --constraint constraints.txt build setuptools
"$work/builder/bin/python" -m build --sdist --no-isolation --outdir "$work" . >"$work/log" \
  || { cat "$work/log"; exit 1; }
tar -xzf "$work"/maccal-*.tar.gz -C "$work"
cd "$work"/maccal-*/
"$python" -m venv .venv
.venv/bin/pip install --quiet --constraint constraints.txt ".[dev]"
.venv/bin/python setup.py --quiet build_ext --inplace  # the tests read the package beside them
.venv/bin/pytest "$@"
