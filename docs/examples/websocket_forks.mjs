// Continue one response in two ways at the same time, on one WebSocket.
//
//     node websocket_forks.mjs [http://127.0.0.1:9000/v1 [MODEL]]
//
// Needs no package: WebSocket is part of Node 22; Node 20 wants --experimental-websocket. Without arguments it talks to
// the gateway of `make demo`.

const [baseUrl = "http://127.0.0.1:9000/v1", model = "sim"] = process.argv.slice(2);
const forks = { left: "Say it to a child.", right: "Say it to a mathematician." };

const socket = new WebSocket(baseUrl.replace("http", "ws") + "/responses");
const running = new Map();

// Asks for a response and resolves to it; at most one a lane at a time.
function create(lane, fields) {
  return new Promise((resolve, reject) => {
    running.set(lane, { resolve, reject });
    socket.send(JSON.stringify({ type: "response.create", model, stream_id: lane, ...fields }));
  });
}

socket.onmessage = ({ data }) => {
  const event = JSON.parse(data);
  const lane = event.stream_id;
  console.log((lane ?? "-").padEnd(6), event.type.padEnd(30), event.delta ?? "");
  if (event.type === "response.completed" || event.type === "response.incomplete") {
    running.get(lane).resolve(event.response);
  } else if (event.type === "response.failed" || event.type === "error") {
    for (const { reject } of running.values()) reject(new Error(JSON.stringify(event)));
  }
};
socket.onclose = ({ code, reason }) => {
  for (const { reject } of running.values()) reject(new Error(`closed with ${code} ${reason}`));
};

await new Promise((resolve, reject) => {
  socket.onopen = resolve;
  socket.onerror = () => reject(new Error(`no WebSocket at ${socket.url}`));
});
// Without a name it is the default lane.
const parent = await create(undefined, { input: "There are infinitely many primes." });
const answers = await Promise.all(
  Object.entries(forks).map(([lane, input]) => create(lane, { input, previous_response_id: parent.id })),
);
socket.close(1000);

Object.keys(forks).forEach((lane, index) => {
  const parts = answers[index].output.flatMap((item) => item.content ?? []);
  console.log(`\n${lane}: ${parts.map((part) => part.text).join("")}`);
});
