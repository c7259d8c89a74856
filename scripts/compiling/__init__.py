"""How product and simulator are compiled: `rewriting` turns a module's text into one that mypyc
makes much of, `named_fields` does what needs types, `build` has it all compiled."""
