"""Trees of agents: who they are, what they say to each other, what they wait for. Pure: no sockets, no clock."""
