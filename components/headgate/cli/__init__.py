"""The operator's hands: the headgate command."""
