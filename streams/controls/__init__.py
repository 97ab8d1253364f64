"""Controls: what operators and breakers say to all workers: pauses, held events, decisions on them."""
