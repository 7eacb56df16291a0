// Passes on the samples of the microphone's first channel.
registerProcessor("samples", class extends AudioWorkletProcessor {
  process([input]) {
    if (input[0]) this.port.postMessage(input[0].slice());
    return true;
  }
});
