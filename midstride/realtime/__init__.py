"""The wall clock: a policy on a robot that does not wait, by the rule that simulations move by."""
