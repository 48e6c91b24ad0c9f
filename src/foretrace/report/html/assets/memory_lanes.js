'use strict';
/* Lanes as a map of memory needs them. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  /** Lanes whose search, matches and tip speak of memory. */
  foretrace.memoryLanes = (element, options) => {
    const lanes = new foretrace.Lanes(element, options);
    const { panel, model } = lanes;
    model.search = options.find;
    panel.input.placeholder = 'Search address, size, state, line  /';
    panel.input.setAttribute('aria-label', 'Search blocks');
    for (const line of panel.help.querySelectorAll('dd')) line.textContent = line.textContent.replace('timeline', 'map');
    const more = ['double click on a title', 'make that segment as wide as the view'];
    const make = foretrace.lanesElement;
    panel.help.querySelector('dl').append(...more.map((words, i) => make(i ? 'dd' : 'dt', '', words)));
    panel.next = (way) => {
      const { found } = panel;
      if (!found.length) return;
      const first = way > 0 ? 0 : found.length - 1;
      panel.at = panel.at < 0 ? first : (panel.at + way + found.length) % found.length;
      lanes.select(found[panel.at], { reveal: true });
      panel._tellCount();
    };
    const tip = panel.tip.bind(panel);
    panel.tip = (row, at) => {
      if (row >= 0 && panel.tipped !== row) {
        panel.tipped = row;
        panel.tipBox.replaceChildren(...options.tip(row).map((words, i) => make(i ? 'span' : 'b', '', words)));
      }
      tip(row, at);
    };
    return lanes;
  };
})();
