"""Work of a replica as time passes: retention, rolling, and giving memory back."""
