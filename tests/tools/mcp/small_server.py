"""An MCP server over standard input and output that starts at once, for tests of what programs do wrong."""

import json
import os
import sys

mode = sys.argv[1]
print("starting, with no-secret and 0wn-s3cret", file=sys.stderr, flush=True)
print("this is no message", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        continue
    result = {}
    if method == "initialize":
        info = {"name": "small", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
    elif method == "tools/list":
        result = {
            "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("say", "die", "shout", "env")]
        }
        if mode == "long":
            result["tools"][0]["description"] = "x" * 5000
    elif method == "tools/call":
        name = params["name"]
        if name == "die":
            os._exit(3)
        text = {"say": params["arguments"].get("text", ""), "env": ",".join(os.environ), "shout": "x" * 100_000}[name]
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
