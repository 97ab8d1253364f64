"""The edge: Kafka, Faust, Qdrant, models, files and the command line. Steps decide, agents do, ports name what they may touch."""
