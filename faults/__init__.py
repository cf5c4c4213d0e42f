"""Faults on purpose: what the package does when processes die, files are damaged, input is odd and
disks are full.

    python -m faults [part ...] [--count N] [--seed S] [--out results/reliability.json]

Parts, one file each: kills, damage, fuzz, crowd, disk, load. Every outcome is counted in one word
(tally.py), the figures go to results/reliability.json, and docs/reliability.md is made from them
(page.py). What is tried is repeatable: a defect's description and the seed say how to see it again.
`make faults` runs all parts in about an hour on two cores; tests/test_faults.py runs a sample of
each.

Only the command line and public names of the package are used.
"""
