// Sends the files of one model to the HTTP API, one after the other and straight from the disk, and tells the page
// how far it is. The page makes the project; this only knows the name of the upload.
(() => {
  const API = "/api/v1/uploads";
  const EVERY_MS = 400;
  let running = null;

  const tell = (what) => emitEvent("ilUpload", what);
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

  const send = async (list, mostBytes, tooLarge) => {
    const files = [...list];
    if (!files.length) return;
    stop();
    const job = running = {};
    const total = files.reduce((sum, file) => sum + file.size, 0);
    const names = files.map((file) => file.name);
    let id = null, before = 0, told = 0;
    try {
      if (total > mostBytes) throw tooLarge;
      tell({ state: "sending", names, done: 0, total });
      id = JSON.parse(await request(job, "POST", API)).id;
      tell({ state: "begun", id });
      for (const file of files) {
        await request(job, "PUT", `${API}/${id}/${encodeURIComponent(file.name)}`, file, (loaded) => {
          if (Date.now() - told < EVERY_MS) return;
          told = Date.now();
          tell({ state: "sending", names, done: before + Math.min(loaded, file.size), total });
        });
        before += file.size;
      }
      if (running === job) tell({ state: "sent", id, names });
    } catch (problem) {
      if (running === job) tell({ state: "failed", id, problem: String(problem) });
    }
    if (running === job) running = null;
  };

  const stop = () => { const job = running; running = null; job?.xhr?.abort(); };

  // Files that miss the zone would be opened in place of the page, and all that was entered would be gone.
  for (const name of ["dragover", "drop"])
    addEventListener(name, (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); });

  window.inferlabUpload = { send, stop };
})();
