"""Read models: what a person asks about the running system, put together from index, topics and offsets. Nothing here writes."""
