'use strict';
/* What a reader types above a column: words to look for, or a comparison of numbers. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const NUMBER = '[-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:e[-+]?\\d+)?';
  const COMPARED = new RegExp(`^(>=|<=|>|<|=|!=)\\s*(${NUMBER})$`, 'i');
  const BETWEEN = new RegExp(`^(${NUMBER})\\s*\\.\\.\\s*(${NUMBER})$`, 'i');

  /**
   * Whether a cell passes a filter. `>5`, `<=3`, `=7`, `1..5` compare what the column shows (a time in the head's unit, a
   * share in percent); anything else is looked for in the words of the cell.
   * @param {string} asked
   * @param {number|null} value in the unit of the column's head; null for text and what is unknown
   * @param {string} said the cell in words
   * @returns {boolean}
   */
  foretrace.passes = (asked, value, said) => {
    const text = asked.trim();
    if (!text) return true;
    const between = BETWEEN.exec(text);
    const compared = COMPARED.exec(text);
    if (between || compared) {
      if (value === null) return false;
      if (between) return value >= Number(between[1]) && value <= Number(between[2]);
      const limit = Number(compared[2]);
      switch (compared[1]) {
        case '>': return value > limit;
        case '<': return value < limit;
        case '>=': return value >= limit;
        case '<=': return value <= limit;
        case '!=': return value !== limit;
        default: return value === limit || said === compared[2];
      }
    }
    return said.toLowerCase().includes(text.toLowerCase());
  };
})();
