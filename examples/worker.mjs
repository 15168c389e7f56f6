// A Fairlane worker in plain JavaScript: no packages, only the documented HTTP.
//   FAIRLANE_URL=http://127.0.0.1:8000 FAIRLANE_KEY=… node examples/worker.mjs
const url = process.env.FAIRLANE_URL ?? "http://127.0.0.1:8000";
const key = process.env.FAIRLANE_KEY;

const handlers = {
  // A handler gets the parameters and a signal that says when to stop.
  async greet({ name }, { progress }) {
    await progress(50, "thinking of something nice");
    return { text: `Hello, ${name}!` };
  },
};
const capacity = 5;
const running = new Map(); // task id → { lease, abort }
let leaving = false;

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(`${url}/internal/workers/${path}`, {
    method: "POST", headers, body: JSON.stringify(body),
  });
  if (answer.ok || answer.status === 409) return answer.json(); // 409: it is somebody else's now
  throw new Error(`${answer.status} ${await answer.text()}`);
}

const task_types = Object.keys(handlers);
const { worker_id: me, heartbeat_seconds, lease_seconds } = await post("register", {
  task_types, capacity, heartbeat_seconds: 5, version: "example",
});
const leases = () => [...running].map(([task_id, { lease }]) => ({ task_id, lease }));

function hear({ cancel, lost, drain }) {
  for (const task of [...cancel, ...lost]) running.get(task)?.abort.abort();
  leaving ||= drain;
}

async function run({ task_id, task_type, parameters, lease }) {
  const abort = new AbortController();
  running.set(task_id, { lease, abort });
  const progress = (percent, text) => post(`${me}/progress`, { task_id, lease, percent, text });
  let end;
  try {
    const result = await handlers[task_type](parameters, { signal: abort.signal, progress });
    end = { status: "completed", result };
  } catch (error) {
    end = { status: "failed", error: { message: String(error), retriable: true } };
  }
  await post(`${me}/result`, { task_id, lease, ...end }).catch(console.error);
  running.delete(task_id);
}

const beat = () => post(`${me}/heartbeat`, { current_load: running.size, leases: leases() });
setInterval(() => beat().then(hear, console.error), heartbeat_seconds * 1000).unref();
for (const sign of ["SIGTERM", "SIGINT"]) process.on(sign, () => { leaving = true; });
console.log(`worker ${me} runs ${task_types}`);

// A machine may have slept since it asked: what the queue has given to another worker is not started.
async function stillOurs(tasks, asked) {
  if (Date.now() - asked < 900 * lease_seconds) return tasks;
  const held = tasks.map(({ task_id, lease }) => ({ task_id, lease }));
  const { cancel, lost } = await post(`${me}/heartbeat`, { leases: [...leases(), ...held] });
  return tasks.filter(({ task_id }) => ![...cancel, ...lost].includes(task_id));
}

while (!leaving) {
  const asked = Date.now();
  const body = { available_capacity: capacity - running.size, wait_seconds: running.size < capacity ? 5 : 1, leases: leases(), poll_id: crypto.randomUUID(), again: false };
  let news = await post(`${me}/poll`, body).catch(() => null); // lost on the way: the same again
  news ??= await post(`${me}/poll`, { ...body, again: true }).catch(() => null);
  if (news) { hear(news); (await stillOurs(news.tasks, asked).catch(() => [])).forEach(run); }
  else await new Promise((later) => setTimeout(later, 1000));
}
while (running.size) await new Promise((later) => setTimeout(later, 50));
await post(`${me}/heartbeat`, { status: "dead" });
