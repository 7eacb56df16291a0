// A chip RP2040 in rp2040js, with a flash of 2 MiB or more: node rp2040.cjs FOLDER-OF-RP2040JS uart|usb
//
// Standard input is 4 bytes with the size of the flash's content, least significant first, the content, and
// then what the serial port receives: UART0, or the one that the chip is at a USB host. Standard output is what
// it sends. It ends with its standard input.
"use strict";
const { RP2040, USBCDC, ConsoleLogger, LogLevel } = require(process.argv[2]);
const { addSecondCore } = require("./second_core.cjs");
const isUsb = process.argv[3] === "usb";

const FLASH = 0x10000000;
const BOOT_SIZE = 256;
const BOOT_RAM = 0x20041f00;
const NANOSECONDS = 8; // of a cycle at 125 MHz
const SYSTICK_VALUE = 0x18;
const AIRCR = 0xd0c;
const AIRCR_RESET = 0x05fa0004;
const SLICE = 200000;
const IDLE = 1e6; // nanoseconds in which an idle chip does nothing

const mcu = new RP2040();
mcu.logger = new ConsoleLogger(LogLevel.Error, false);
const second = addSecondCore(RP2040, mcu);
let restart = false;

// The watchdog resets the chip, itself included.
const watchdog = mcu.peripherals[0x40058];
watchdog.onWatchdogTrigger = () => {
  watchdog.writeUint32(0, 0);
  restart = true;
};

// A write to SysTick's value sets it to 0 and raises no interrupt, in the chip; and a core can reset itself.
const write = mcu.ppb.writeUint32.bind(mcu.ppb);
mcu.ppb.writeUint32 = (offset, value) => {
  if (offset === SYSTICK_VALUE) {
    mcu.ppb.systickTimer.set(mcu.ppb.systickReload);
    mcu.ppb.systickCountFlag = false;
  } else if (offset === AIRCR && value >>> 0 === AIRCR_RESET) {
    restart = true;
  } else {
    write(offset, value);
  }
};

// CRC-32/MPEG-2, as the boot ROM computes it.
function crc(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte << 24;
    for (let bit = 0; bit < 8; bit++) sum = sum & 0x80000000 ? (sum << 1) ^ 0x04c11db7 : sum << 1;
  }
  return sum >>> 0;
}

// The functions of the boot ROM that erase and program the flash (datasheet, 2.8.3): a table of codes, a function that
// looks them up, and for each a breakpoint that is done here. Nothing may be fetched from the flash meanwhile.
const ROM_LOOKUP = [0x8802, 0x428a, 0xd004, 0x3004, 0x2a00, 0xd1f9, 0x2000, 0x4770, 0x8840, 0x4770];
const ROM_CODES = ["IF", "EX", "RE", "RP", "FC"];
const [LOOKUP, FUNCTIONS, TABLE] = [0x40, 0x60, 0x80];
const rom = new DataView(mcu.bootrom.buffer);
rom.setUint16(0x14, TABLE, true);
rom.setUint16(0x18, LOOKUP | 1, true);
ROM_LOOKUP.forEach((code, i) => rom.setUint16(LOOKUP + 2 * i, code, true));
ROM_CODES.forEach((code, i) => {
  rom.setUint16(FUNCTIONS + 4 * i, 0xbe00 | i, true); // a breakpoint
  rom.setUint16(FUNCTIONS + 4 * i + 2, 0x4770, true); // and back
  rom.setUint16(TABLE + 4 * i, code.charCodeAt(0) | (code.charCodeAt(1) << 8), true);
  rom.setUint16(TABLE + 4 * i + 2, (FUNCTIONS + 4 * i) | 1, true);
});

function fail(text) {
  console.error(text);
  process.exit(1);
}

mcu.onBreak = (number) => {
  const [offset, argument, third] = mcu.core.registers;
  const isInFlash = (address) => address >>> 28 === 1;
  if (isInFlash(mcu.core.LR)) fail("core 0 erases or writes the flash by code that is in it");
  if (second.isRunning() && isInFlash(second.address())) fail("core 1 runs from the flash while it is written");
  if (ROM_CODES[number] === "RE") mcu.flash.fill(0xff, offset, offset + argument);
  if (ROM_CODES[number] !== "RP") return;
  for (let i = 0; i < third; i++) mcu.flash[offset + i] &= mcu.readUint8(argument + i);
};

// What the boot ROM does: the first 256 bytes of the flash run in RAM, if their CRC is right.
function boot() {
  const first = mcu.flash.subarray(0, BOOT_SIZE);
  const view = new DataView(first.buffer, first.byteOffset);
  if (crc(first.subarray(0, BOOT_SIZE - 4)) !== view.getUint32(BOOT_SIZE - 4, true)) {
    console.error("the CRC of the first 256 bytes is wrong: the board would start as a drive");
    process.exit(1);
  }
  for (let at = 0; at < BOOT_SIZE; at += 4) mcu.writeUint32(BOOT_RAM + at, view.getUint32(at, true));
  const { core } = mcu;
  core.PM = false;
  core.IPSR = 0;
  core.enabledInterrupts = 0;
  core.waiting = false;
  core.LR = 0;
  core.SP = BOOT_RAM;
  core.PC = BOOT_RAM;
  restart = false;
  second.reset();
}

let sent = [];
mcu.uart[0].onByte = (byte) => sent.push(byte);

let received = [];
let next = 0;
let wanted = 0; // bytes that the chip has room for, on USB

const host = isUsb ? new USBCDC(mcu.usbCtrl) : null;
if (isUsb) {
  host.onSerialData = (bytes) => sent.push(...bytes);
  mcu.usbCtrl.onEndpointRead = (endpoint, size) => {
    if (endpoint === host.outEndpoint) wanted = size;
  };
}

function feedUsb() {
  if (wanted === 0 || next === received.length) return;
  const bytes = received.slice(next, next + wanted);
  next += bytes.length;
  wanted = 0;
  mcu.usbCtrl.endpointReadDone(host.outEndpoint, new Uint8Array(bytes));
}

function feedUart() {
  const uart = mcu.uart[0];
  while (next < received.length && uart.enabled && uart.rxEnabled && !uart.rxFIFO.full) uart.feedByte(received[next++]);
}

function feed() {
  if (isUsb) feedUsb();
  else feedUart();
  if (next === received.length && next > 0) {
    received = [];
    next = 0;
  }
}

function run() {
  const { core, clock } = mcu;
  for (let n = 0; n < SLICE; n++) {
    if ((n & 63) === 0) feed();
    if (restart) boot();
    if (!core.waiting || second.wakesFirst()) {
      clock.tick(second.execute() * NANOSECONDS);
      continue;
    }
    const cycles = second.executeAlone();
    if (cycles > 0) {
      clock.tick(cycles * NANOSECONDS);
    } else {
      const ahead = clock.nanosToNextAlarm;
      const isSoon = ahead > 0 && ahead < IDLE;
      clock.tick(isSoon ? ahead : IDLE);
      feed();
      if (!isSoon && core.waiting) break;
    }
  }
  if (sent.length > 0) {
    process.stdout.write(Buffer.from(sent));
    sent = [];
  }
  if (mcu.core.waiting && next === received.length) setTimeout(run, 1);
  else setImmediate(run);
}

let start = Buffer.alloc(0);
let started = false;
process.stdin.on("data", (data) => {
  if (started) {
    for (const byte of data) received.push(byte);
    return;
  }
  start = Buffer.concat([start, data]);
  if (start.length < 4 || start.length < 4 + start.readUInt32LE(0)) return;
  const end = 4 + start.readUInt32LE(0);
  mcu.flash.fill(0xff);
  mcu.flash.set(start.subarray(4, end));
  for (const byte of start.subarray(end)) received.push(byte);
  started = true;
  boot();
  run();
});
process.on("SIGUSR2", () => {
  restart = true; // somebody presses reset
});
process.stdin.on("end", () => process.exit(0));
