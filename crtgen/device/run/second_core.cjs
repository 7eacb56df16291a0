// The second core of a chip RP2040: another chip of rp2040js with the same memory, FIFOs between both, and one event.
//
// It waits, as in the boot ROM, until the first core has sent six words through the FIFO, each of which it sends
// back: 0, 0, 1, its vector table, stack pointer and entry. Then it runs beside the first core, by cycles.
"use strict";

const CPUID = 0x00;
const FIFO_ST = 0x50; // bit 0: something to read, bit 1: room to write
const FIFO_WR = 0x54;
const FIFO_RD = 0x58;
const FIFO_DEPTH = 8;
const SEV = 0xbf40;
const LAUNCH = 6; // words

exports.addSecondCore = (RP2040, first) => {
  const second = new RP2040();
  second.logger = first.logger;
  for (const name of Object.keys(first)) {
    if (ArrayBuffer.isView(first[name])) second[name] = first[name]; // the memories
  }
  const chips = [first, second];
  const inbox = [[], []];
  let words = [];
  let isRunning = false;
  let ahead = 0; // cycles that the first core was given more than the second

  function wake() {
    for (const { core } of chips) {
      core.eventRegistered = true;
    }
  }

  // A core that waits for an event goes on if there is one; one that waits for an interrupt is not hurt by it.
  function goesOn(core) {
    if (!core.waiting) return true;
    if (!core.eventRegistered) return false;
    core.eventRegistered = false;
    core.waiting = false;
    return true;
  }

  function launch(word) {
    const isRight = words.length < 2 ? word === 0 : words.length > 2 || word === 1;
    words = isRight ? [...words, word] : [];
    inbox[0].push(word);
    wake();
    if (words.length < LAUNCH) return;
    const { core } = second;
    core.VTOR = words[3];
    core.SP = words[4];
    core.PC = words[5] & ~1;
    core.waiting = false;
    isRunning = true;
  }

  chips.forEach(({ sio }, me) => {
    const read = sio.readUint32.bind(sio);
    const write = sio.writeUint32.bind(sio);
    sio.readUint32 = (offset) => {
      if (offset === CPUID) return me;
      if (offset === FIFO_ST) return (inbox[me].length ? 1 : 0) | (inbox[1 - me].length < FIFO_DEPTH ? 2 : 0);
      return offset === FIFO_RD ? inbox[me].shift() ?? 0 : read(offset);
    };
    sio.writeUint32 = (offset, value) => {
      if (offset !== FIFO_WR) write(offset, value);
      else if (me === 0 && !isRunning) launch(value >>> 0);
      else inbox[1 - me].push(value >>> 0);
    };
  });

  function execute(chip) {
    if (chip.readUint16(chip.core.PC) === SEV) wake();
    return chip.core.executeInstruction();
  }

  return {
    // An instruction of the first core, and what the second one does in that time; the cycles of it.
    execute() {
      if (!isRunning) return first.core.executeInstruction();
      const cycles = execute(first);
      ahead += cycles;
      while (ahead > 0 && goesOn(second.core)) ahead -= execute(second);
      if (second.core.waiting) ahead = 0;
      return cycles;
    },
    // The first core waits: an instruction of the second one, if that is busy, or 0.
    executeAlone() {
      if (!isRunning || !goesOn(second.core)) return 0;
      return execute(second);
    },
    // Whether the first core, which waits, goes on.
    wakesFirst() {
      return isRunning && goesOn(first.core);
    },
    isRunning() {
      return isRunning;
    },
    // Where the second core is.
    address() {
      return second.core.PC;
    },
    reset() {
      isRunning = false;
      words = [];
      inbox[0].length = 0;
      inbox[1].length = 0;
      ahead = 0;
    },
  };
};
