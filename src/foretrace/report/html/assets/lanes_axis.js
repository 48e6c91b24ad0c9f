'use strict';
/* The axis of lanes, in ns or bytes: its ticks, and lengths in the words of foretrace.words. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const SHORT = 100; // ns below which a length is said in ns
  const TIMES = [
    [1e9, 's'],
    [1e6, 'ms'],
    [1e3, 'µs'],
    [0, 'ns'],
  ];
  const SIZES = [
    [2 ** 40, 'TiB'],
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB'],
    [0, 'B'],
  ];

  const unitOf = (table, size) => table.find(([least]) => Math.abs(size) >= least);

  /** "31.8 µs" from ns. */
  const timeWords = (ns) =>
    Math.abs(ns) < SHORT ? `${Number(ns.toPrecision(3))} ns` : foretrace.words.time(ns / 1e3);

  /** A time with all its digits: "1563.196 µs". */
  const exactTime = (ns) => (Math.abs(ns) < 1e3 ? `${ns} ns` : `${(ns / 1e3).toFixed(3)} µs`);

  /** A time with as many digits as tell it from the next tick. */
  function timeTick(ns, step, end) {
    const [factor, unit] = unitOf(TIMES, end);
    const decimals = Math.max(0, Math.ceil(-Math.log10(step / (factor || 1)) - 1e-9));
    return `${(ns / (factor || 1)).toFixed(Math.min(12, decimals))} ${unit}`;
  }

  /** A size with the digits that tell it from the next tick. */
  function sizeTick(bytes, step) {
    const [factor, unit] = unitOf(SIZES, Math.max(step, Math.abs(bytes)));
    const decimals = Math.max(0, Math.ceil(-Math.log10(step / (factor || 1)) - 1e-9));
    return `${Number((bytes / (factor || 1)).toFixed(Math.min(12, decimals)))} ${unit}`;
  }

  function sizeTicks(start, end, count) {
    const step = 2 ** Math.max(0, Math.ceil(Math.log2((end - start) / count)));
    const ticks = [];
    for (let at = Math.ceil(start / step) * step; at <= end; at += step) ticks.push(at);
    return ticks;
  }

  const AXES = {
    ns: {
      length: timeWords,
      exact: exactTime,
      ticks: (start, end, count) => d3.scaleLinear([start, end], [0, 1]).ticks(count),
      tick: timeTick,
      finest: 20,
    },
    bytes: {
      length: (bytes) => foretrace.words.mebibytes(bytes),
      exact: (bytes) => `${bytes.toLocaleString('en-GB')} B`,
      ticks: sizeTicks,
      tick: sizeTick,
      finest: 64,
    },
  };

  /**
   * @param {string} unit 'ns' or 'bytes'
   * @returns {{length: function, exact: function, ticks: function, tick: function, finest: number}} `finest`: the
   *   shortest stretch that may fill the view
   */
  foretrace.lanesAxis = (unit) => AXES[unit];
})();
