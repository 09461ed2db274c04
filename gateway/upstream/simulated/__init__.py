"""A stand-in for vLLM: the same bytes on the wire, no model, and every fault on request."""

from gateway.upstream.simulated.agents import AgentScripts, load_agents
from gateway.upstream.simulated.app import Received, Simulator
from gateway.upstream.simulated.script import ScriptedReply, load_script
from gateway.upstream.simulated.serving import serve_simulator

__all__ = [
    "AgentScripts",
    "Received",
    "ScriptedReply",
    "Simulator",
    "load_agents",
    "load_script",
    "serve_simulator",
]
