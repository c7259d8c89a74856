"""Log directories of a broker process, and the workers that write, sync and read them."""
