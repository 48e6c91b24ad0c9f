'use strict';
/* What a reader types into the search of a memory map: an address, a size, a state, a line, or several of them. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  // As the command line reads sizes: KiB is 1024 bytes, kB 1000, a letter alone is binary.
  const UNITS = { '': 1, b: 1, k: 2 ** 10, kib: 2 ** 10, kb: 1e3, m: 2 ** 20, mib: 2 ** 20, mb: 1e6 };
  Object.assign(UNITS, { g: 2 ** 30, gib: 2 ** 30, gb: 1e9, t: 2 ** 40, tib: 2 ** 40, tb: 1e12 });
  const SIZE = '(\\d+(?:\\.\\d+)?)\\s*([kmgt]i?b|[kmgtb])?';
  const COMPARED = new RegExp(`(>=|<=|>|<|=)\\s*${SIZE}(?![\\w.])`, 'gi');
  const BETWEEN = new RegExp(`(?<![\\w.:])${SIZE}\\s*\\.\\.\\s*${SIZE}(?![\\w.])`, 'gi');
  const PLAIN = /^(\d+(?:\.\d+)?)\s*([kmgt]i?b|b)$/i;
  const ADDRESS = /(?:^|\s)0x([0-9a-f]+)(?=\s|$)/gi;

  const bytes = (digits, unit) => Number(digits) * UNITS[(unit || '').toLowerCase()];
  const COMPARE = {
    '>=': (a, b) => a >= b,
    '<=': (a, b) => a <= b,
    '>': (a, b) => a > b,
    '<': (a, b) => a < b,
    '=': (a, b) => a === b,
  };

  /**
   * Read what was typed.
   * @param {string} text
   * @param {string[]} states names of states
   * @returns {{addresses: bigint[], sizes: Array<(size: number) => boolean>, states: string[], said: string|null,
   *   words: string}} what a block must be; `said` is a size as it is shown
   */
  foretrace.readMemorySearch = (text, states) => {
    const asked = { addresses: [], sizes: [], states: [], said: null, words: '' };
    let rest = text
      .replace(ADDRESS, (_, hex) => {
        asked.addresses.push(BigInt(`0x${hex}`));
        return ' ';
      })
      .replace(BETWEEN, (_, a, unitA, b, unitB) => {
        const [low, high] = [bytes(a, unitA || unitB), bytes(b, unitB)];
        asked.sizes.push((size) => size >= low && size <= high);
        return ' ';
      })
      .replace(COMPARED, (_, sign, digits, unit) => {
        const limit = bytes(digits, unit);
        asked.sizes.push((size) => COMPARE[sign](size, limit));
        return ' ';
      })
      .trim();
    // Longer names first: "free segment" is not "free".
    const named = [...states, 'free'].sort((a, b) => b.length - a.length);
    const state = named.find((one) => new RegExp(`^${one}(\\s|$)`, 'i').test(rest));
    if (state) {
      asked.states = state === 'free' ? states.filter((one) => one === 'hole' || one.startsWith('free')) : [state];
      rest = rest.slice(state.length).trim();
    }
    const plain = PLAIN.exec(rest);
    if (plain) {
      const exact = bytes(plain[1], plain[2]);
      const shown = foretrace.words.mebibytes(exact);
      asked.sizes.push((size) => size === exact || foretrace.words.mebibytes(size) === shown);
    } else asked.words = rest.toLowerCase();
    return asked;
  };
})();
