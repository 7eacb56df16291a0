// Live inputs of a running model: a drawing, the webcam, the microphone, a file.
import { bars, failure, make } from "./show.js";

const SECONDS = 2;

export function live({ at, ask, post, status, state, level }) {
  const now = { about: null, stream: null, timer: 0, busy: false, next: null, context: null };

  // The inputs that the model can read: a network without a pipeline reads no sound.
  function enable() {
    at("draw").disabled = at("camera").disabled = !now.about || !picture();
    at("sound").disabled = !now.about || picture();
    at("input").disabled = !now.about;
  }

  function stop() {
    clearInterval(now.timer);
    now.stream?.getTracks().forEach((track) => track.stop());
    now.context?.close();
    Object.assign(now, { stream: null, context: null, timer: 0 });
    at("video").hidden = at("stage").hidden = true;
  }

  async function start() {
    stop();
    status("Building the model for this computer ...");
    try {
      now.about = await ask("start", { optimize: level() });
      if (now.about.error) throw Object.assign(new Error(now.about.message), now.about);
      enable();
      status(`${now.about.model} runs. Choose an input.`);
      if (picture()) draw();
    } catch (error) {
      at("bars").replaceChildren(...failure(error));
      status(error.message, true);
    }
  }

  const picture = () => now.about.rate === null && now.about.inputs.length === 1 && now.about.inputs[0].shape.length > 2;

  // Sends an input. While one is computed only the newest of the others waits.
  async function send(blob, suffix) {
    if (!now.about) return;
    if (now.busy) {
      now.next = [blob, suffix];
      return;
    }
    now.busy = true;
    try {
      const type = "application/octet-stream";
      const answer = await post(`/api/input?drop=${state.drop}&suffix=${suffix}`, blob, type);
      at("bars").replaceChildren(...(answer.error ? failure(answer) : results(answer)));
    } catch (error) {
      at("bars").replaceChildren(...failure(error));
    } finally {
      const next = now.next;
      Object.assign(now, { busy: false, next: null });
      if (next) send(...next);
    }
  }

  function results(answer) {
    const names = now.about.labels.length ? now.about.labels : state.names;
    const shown = Object.entries(answer.values).flatMap(([name, values]) => [make("h3", {}, name), ...bars(values, names)]);
    const events = (answer.events ?? []).map((event) => make("p", {}, `event: ${names[event.label] ?? event.label}`));
    return [...shown, ...events, make("p", { className: "muted" }, `${(answer.seconds * 1e3).toFixed(1)} ms on this computer, with the connection`)];
  }

  function draw() {
    stop();
    at("stage").hidden = false;
    clear();
  }

  function clear() {
    const context = at("canvas").getContext("2d");
    context.fillStyle = at("dark-ink").checked ? "#fff" : "#000";
    context.fillRect(0, 0, 280, 280);
    sendCanvas(at("canvas"));
  }

  const sendCanvas = (canvas) => canvas.toBlob((blob) => blob && send(blob, ".png"));

  // Strokes of one and a half of the network's pixels, as in digits that people wrote.
  function thickness() {
    const side = Math.max(...(now.about?.inputs[0].shape.slice(1, 3) ?? [28]));
    return Math.min(56, Math.max(18, (1.5 * 280) / side));
  }

  const pen = { x: 140, y: 60, down: false };

  function stroke(x, y, ink) {
    const context = at("canvas").getContext("2d");
    context.strokeStyle = at("dark-ink").checked ? "#000" : "#fff";
    Object.assign(context, { lineWidth: thickness(), lineCap: "round", lineJoin: "round" });
    if (ink) {
      context.beginPath();
      context.moveTo(pen.x, pen.y);
      context.lineTo(x, y);
      context.stroke();
      sendCanvas(at("canvas"));
    }
    Object.assign(pen, { x, y });
  }

  function place(event) {
    const box = at("canvas").getBoundingClientRect();
    return [((event.clientX - box.left) * 280) / box.width, ((event.clientY - box.top) * 280) / box.height];
  }

  function keys(event) {
    const step = { ArrowLeft: [-14, 0], ArrowRight: [14, 0], ArrowUp: [0, -14], ArrowDown: [0, 14] }[event.key];
    if (event.key === " ") pen.down = !pen.down;
    else if (step) stroke(Math.min(280, Math.max(0, pen.x + step[0])), Math.min(280, Math.max(0, pen.y + step[1])), pen.down);
    else return;
    event.preventDefault();
  }

  async function camera() {
    stop();
    try {
      now.stream = await navigator.mediaDevices.getUserMedia({ video: { width: 320, height: 240 } });
    } catch (error) {
      status(`no webcam: ${error.message}`, true);
      return;
    }
    at("video").hidden = false;
    at("video").srcObject = now.stream;
    await at("video").play();
    now.timer = setInterval(frame, 200);
  }

  // The square in the middle of the webcam's picture.
  function frame() {
    const video = at("video");
    const side = Math.min(video.videoWidth, video.videoHeight);
    const canvas = make("canvas", { width: side, height: side });
    const left = (video.videoWidth - side) / 2;
    canvas.getContext("2d").drawImage(video, left, (video.videoHeight - side) / 2, side, side, 0, 0, side, side);
    sendCanvas(canvas);
  }

  async function sound() {
    stop();
    const rate = now.about.rate ?? 16000;
    try {
      now.stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
      now.context = new AudioContext({ sampleRate: rate });
      await now.context.audioWorklet.addModule("sound.js");
    } catch (error) {
      status(`no microphone: ${error.message}`, true);
      return;
    }
    const node = new AudioWorkletNode(now.context, "samples");
    const kept = new Float32Array(SECONDS * rate);
    node.port.onmessage = ({ data }) => {
      kept.copyWithin(0, data.length);
      kept.set(data, kept.length - data.length);
    };
    now.context.createMediaStreamSource(now.stream).connect(node);
    now.timer = setInterval(() => send(new Blob([wav(kept, rate)]), ".wav"), 500);
    status(`Listening: the last ${SECONDS} seconds, at ${rate} Hz.`);
  }

  at("start").onclick = start;
  at("draw").onclick = draw;
  at("camera").onclick = camera;
  at("sound").onclick = sound;
  at("clear").onclick = at("dark-ink").onchange = clear;
  at("canvas").onkeydown = keys;
  at("canvas").onpointerdown = (event) => {
    at("canvas").setPointerCapture(event.pointerId);
    Object.assign(pen, { x: place(event)[0], y: place(event)[1] });
    stroke(...place(event), true);
  };
  at("canvas").onpointermove = (event) => event.buttons && stroke(...place(event), true);
  at("input").onchange = () => {
    const file = at("input").files[0];
    if (file) send(file, file.name.slice(file.name.lastIndexOf(".")).toLowerCase());
  };

  return {
    reset() {
      stop();
      now.about = null;
      enable();
      at("bars").replaceChildren();
    },
  };
}

// 16-bit samples of one channel, as a WAV file.
export function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, word) => [...word].forEach((letter, n) => view.setUint8(at + n, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  [[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, rate, 4], [28, 2 * rate, 4], [32, 2, 2], [34, 16, 2]].forEach(([at, value, bytes]) =>
    bytes === 4 ? view.setUint32(at, value, true) : view.setUint16(at, value, true));
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, n) => view.setInt16(44 + 2 * n, Math.max(-1, Math.min(1, sample)) * 32767, true));
  return view.buffer;
}
