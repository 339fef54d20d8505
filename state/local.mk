# state/
