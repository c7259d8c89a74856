"""Histories in other people's formats: EDN, Jepsen's, Porcupine's and Knossos'."""
