"""Other people's clients and tools against a cluster of ours, as a matrix of what works.

* `features`: the features that every client is asked for;
* `clients`: the clients, their versions, and how each one is prepared and started;
* `outcomes`: the one rule from a client's words to a cell of the matrix;
* `running`: one client's programs, their silence, and their effects in the topics;
* `matrix`: the cells, the expected ones (`expected.json`), and both as text, JSON and a page;
* `suites`, `suite_table`, `soaking`: their own test suites, for `scripts/soak strangers`;
* `programs/`: one small program a client, in the client's language.
"""
