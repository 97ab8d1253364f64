"""confluent-kafka at the edge: clients, topics and lag, bulk producing, reading. The agents' own path is Faust's."""
