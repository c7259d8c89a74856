"""One run played from the founding of a cluster to the verdict, from a seed, a file or a folder."""
