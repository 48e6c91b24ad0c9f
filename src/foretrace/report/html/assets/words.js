'use strict';
/* Quantities in words, as foretrace/model/words.py says them: three significant digits; what is unknown is a dash. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const UNKNOWN = '–';
  const LEAST_TOLD = 0.001;
  const known = (value) => typeof value === 'number' && Number.isFinite(value);

  /** The value with so many decimals, halves to the even digit (toFixed takes halves away from zero). */
  function fixed(value, decimals) {
    const exact = Math.abs(value).toFixed(Math.min(100, decimals + 60));
    const point = exact.indexOf('.');
    const rest = exact.slice(point + 1 + decimals);
    const text = Math.abs(value).toFixed(decimals);
    let said = text;
    if (rest[0] === '5' && /^50*$/.test(rest)) {
      const cut = decimals ? exact.slice(0, point + 1 + decimals) : exact.slice(0, point);
      // A tie: what is cut off already ends in an even digit, or the next number does.
      said = Number(cut[cut.length - 1]) % 2 === 0 ? cut : text;
    }
    return value < 0 || Object.is(value, -0) ? `-${said}` : said;
  }

  /** A number with three significant digits; digits before the point are never replaced by zeros. */
  function number(value, digits = 3) {
    if (!known(value)) return UNKNOWN;
    if (value === 0) return '0';
    const magnitude = Number(value.toExponential(20).split('e')[1]);
    let text = fixed(value, Math.max(0, digits - 1 - magnitude));
    const figures = text.replace('-', '').replace('.', '').replace(/^0+/, '').length;
    if (text.includes('.') && figures > digits) text = fixed(value, Math.max(0, digits - 2 - magnitude));
    return text;
  }

  /** A count: a whole number as it is. */
  const count = (value) => (known(value) ? String(value) : UNKNOWN);
  /** A count that may be an average. */
  const average = (value) => (known(value) && Number.isInteger(value) ? String(value) : number(value));

  const prefixed = (value, unit, digits) => {
    if (!known(value)) return UNKNOWN;
    for (const [factor, prefix] of [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
      if (Math.abs(value) >= factor) return `${number(value / factor, digits)} ${prefix}${unit}`;
    }
    return `${Number.isInteger(value) ? value : number(value, digits)} ${unit}`;
  };

  /** The number of a time; below a thousandth, which no clock tells, only that. */
  const duration = (value) => (known(value) && value > 0 && value < LEAST_TOLD ? `<${LEAST_TOLD}` : number(value));

  function time(us) {
    if (!known(us)) return UNKNOWN;
    const size = Math.abs(us);
    const [divisor, unit] = size >= 1e6 ? [1e6, 's'] : size >= 1e3 ? [1e3, 'ms'] : [1, 'µs'];
    return `${duration(us / divisor)} ${unit}`;
  }

  function percent(part) {
    if (!known(part)) return UNKNOWN;
    if (part > 0 && part < 0.001) return '<0.1';
    if (part > 0.999 && part < 1) return '>99.9';
    if (part === 1) return '100';
    return part ? fixed(part * 100, 1) : '0';
  }

  /** A relative change: "+2.1 %"; from ten times on as a factor. */
  function signed(change) {
    if (!known(change)) return UNKNOWN;
    if (Math.abs(change) >= 10) return `${number(1 + change)}×`;
    return `${change < 0 || Object.is(change, -0) ? '' : '+'}${fixed(change * 100, 1)} %`;
  }

  function mebibytes(value) {
    if (!known(value)) return UNKNOWN;
    const size = Math.abs(value);
    const [unit, factor] = size >= 2 ** 20 ? ['MiB', 2 ** 20] : size >= 1024 ? ['KiB', 1024] : ['B', 1];
    const text = number(value / factor, 4);
    return `${text.includes('.') ? text.replace(/0+$/, '').replace(/\.$/, '') : text} ${unit}`;
  }

  const plain = (value) => (value === null || value === undefined ? UNKNOWN : String(value));

  /** @type {Object<string, (value: any) => string>} by the form of a column */
  foretrace.words = {
    number: (value) => number(value),
    duration,
    count,
    average,
    percent,
    signed,
    mebibytes,
    time,
    bytes: (value) => prefixed(value, 'B', 3),
    flop: (value) => prefixed(value, 'FLOP', 4),
    text: plain,
    name: plain,
  };
})();
