"""The operations page: aggregates kept as records pass (pure), the edge that feeds them, and the server that shows them."""
