"""From a produced batch to the log: judging it, stamping it, and the table of producers."""
