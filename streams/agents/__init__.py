"""The bodies of the agents: plain coroutines over the ports. They read, call a step, do, remember. Faust only calls them."""
