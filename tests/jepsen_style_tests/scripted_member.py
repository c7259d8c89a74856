"""A member of a group that says what its settings tell it to say, and ends as they say."""

import json
import sys

settings = json.loads(sys.argv[2])
for line in settings["lines"]:
    print(json.dumps(line) if isinstance(line, dict) else line, flush=True)
sys.stdin.read()
for line in settings.get("last", ()):
    print(json.dumps(line), flush=True)
sys.exit(settings.get("ends", 0))
