#!/usr/bin/env bash
# The five commands of the start page, as they stand there, in an empty folder and environment.
#
#     release/newcomer.sh                 a few minutes; prints what a newcomer sees
#
# What is not published yet is replaced: maccal is this checkout, and torch is the pinned one.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

git -C "$root" archive HEAD 2>/dev/null | tar -x --one-top-level="$work/source" \
  || cp -r "$root" "$work/source"  # a copy: building leaves files behind
sed -n '/^```sh$/,/^```$/p' docs/index.md | sed '/^```/d' \
  | sed "s#^env/bin/pip install torch.*#env/bin/pip install -q -c $root/constraints.txt torch torchvision#" \
  | sed "s#^env/bin/pip install maccal#env/bin/pip install -q -c $root/constraints.txt $work/source#" \
  | sed "s#^python3 -m venv#${PYTHON:-python3} -m venv#" >"$work/commands.sh"
cd "$work"
grep -v '^env/bin/maccal' commands.sh >install.sh
bash -eu install.sh
if ! env/bin/python -c "import torchvision" 2>/dev/null; then
  # The wheel of torchvision on PyPI is made for CUDA: without it, two operators must be declared.
  # The CPU build, which pytorch.org's start page shows, needs nothing.
  echo "torchvision needs CUDA here: declaring two of its operators"
  site=$(env/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
  cat >"$site/sitecustomize.py" <<'END'
import torch

library = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
END
fi
grep '^env/bin/maccal' commands.sh >last.sh
env -u PYTHONPATH bash -eux last.sh
ls made
