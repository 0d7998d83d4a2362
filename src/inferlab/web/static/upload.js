// Sends files to the HTTP API, one after the other and straight from the disk, and tells the page how far it is.
// Each `channel` is an event of the page and one upload: what belongs to a model may follow it in a second step.
(() => {
  const API = "/api/v1/uploads";
  const EVERY_MS = 400;
  // By channel: what is on its way, and the upload that was sent last with the names of its files.
  const running = {}, sent = {};

  const sentence = (text, status) => {
    try { const said = JSON.parse(text).detail; if (typeof said === "string") return said; } catch {}
    return status ? `The server refused the upload (${status}).` : "The connection broke during the upload. Try again.";
  };

  const request = (job, method, address, body, progress) => new Promise((resolve, reject) => {
    const xhr = job.xhr = new XMLHttpRequest();
    xhr.open(method, address);
    if (progress) xhr.upload.onprogress = (event) => progress(event.loaded);
    xhr.onload = () => xhr.status < 400 ? resolve(xhr.responseText) : reject(sentence(xhr.responseText, xhr.status));
    xhr.onerror = () => reject(sentence("", 0));
    xhr.onabort = () => reject("");
    xhr.send(body);
  });

  // `limits`: mostBytes, the sentence tooLarge, and the endings of names that begin an upload of their own.
  const send = async (channel, list, limits) => {
    const files = [...list];
    if (!files.length) return;
    const tell = (what) => emitEvent(channel, what);
    const begins = (name) => limits.endings.some((ending) => name.toLowerCase().endsWith(ending));
    running[channel]?.xhr?.abort();
    const job = running[channel] = {};
    const total = files.reduce((sum, file) => sum + file.size, 0);
    const names = files.map((file) => file.name);
    const known = sent[channel];
    const more = known && !(names.some(begins) && known.names.some(begins)) ? known : null;
    delete sent[channel];
    let id = more?.id ?? null, before = 0, told = 0;
    try {
      if (total > limits.mostBytes) throw limits.tooLarge;
      tell({ state: "sending", names, done: 0, total });
      if (id === null) {
        id = JSON.parse(await request(job, "POST", API)).id;
        tell({ state: "begun", id });
      }
      for (const file of files) {
        await request(job, "PUT", `${API}/${id}/${encodeURIComponent(file.name)}`, file, (loaded) => {
          if (Date.now() - told < EVERY_MS) return;
          told = Date.now();
          tell({ state: "sending", names, done: before + Math.min(loaded, file.size), total });
        });
        before += file.size;
      }
      if (running[channel] === job) {
        sent[channel] = { id, names: [...(more?.names ?? []), ...names] };
        tell({ state: "sent", id, names });
      }
    } catch (problem) {
      if (running[channel] === job) tell({ state: "failed", id, problem: String(problem) });
    }
    if (running[channel] === job) delete running[channel];
  };

  const stop = (channel) => {
    const job = running[channel];
    delete running[channel];
    delete sent[channel];
    job?.xhr?.abort();
  };

  // Files that miss the zone would be opened in place of the page, and all that was entered would be gone.
  for (const name of ["dragover", "drop"])
    addEventListener(name, (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); });

  window.inferlabUpload = { send, stop };
})();
