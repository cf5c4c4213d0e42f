"""The fifteen corruptions of CIFAR-C, made from any images."""
