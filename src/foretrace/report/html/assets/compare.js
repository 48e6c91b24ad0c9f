'use strict';
/* The page of a comparison: lanes side by side, and tables whose rows light up in them. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const $ = (id) => document.getElementById(id);
  const numberOf = (table) => Number(table.id.split('-').pop());

  class ComparePage {
    constructor(page) {
      this.page = page;
      const showRows = page.showRows.bind(page);
      page.rowsOf = (data, row) => this.rowsOf(data, row);
      page.showRows = (rows, how) => this.view && showRows(rows, how);
      page.clear = () => this.clear();
    }

    async start() {
      const [{ document: said }, timelines] = await Promise.all([foretrace.unpack('data-pairs'), this._timelines()]);
      this.pairs = said.pairs;
      this.sides = said.sides.map((side, at) => ({ ...side, timeline: timelines.get(at) || null }));
      for (const button of document.querySelectorAll('.pairs button')) {
        button.addEventListener('click', () => this.choose(Number(button.dataset.pair)));
      }
      if ($('lanes') && this.pairs.length) this.choose(this.pairs[0].b);
      this.showAddressed();
      // The page itself may have looked at the address before there were lanes.
      const event = /^#event-(\d+)$/.exec(location.hash);
      if (event && this.lanes) this.page.show([Number(event[1])], { select: Number(event[1]) });
      window.addEventListener('hashchange', () => this.showAddressed());
    }

    /** An address that names a place (`#place-1-2`: of the first pair the second) shows it. */
    showAddressed() {
      const [, b, at] = /^#place-(\d+)-(\d+)$/.exec(location.hash) || [];
      const pair = this.pairs.find((one) => one.b === Number(b));
      if (!pair || !pair.places[at - 1] || !$('lanes')) return;
      this.choose(pair.b);
      const rows = this.view.rowsOfPlace(at - 1);
      this.page.showRows(rows.filter((row) => row >= 0), { of: rows.length });
    }

    async _timelines() {
      const blocks = [...document.querySelectorAll('script[id^="data-side-"]')];
      const read = blocks.map(async (one) => [Number(one.id.slice('data-side-'.length)), await foretrace.unpack(one.id)]);
      return new Map(await Promise.all(read));
    }

    /** Show one of the pairs, named by the position of its other trace. */
    choose(b) {
      if (this.view && this.view.pair.b === b) return;
      const pair = this.pairs.find((one) => one.b === b);
      if (!pair || !$('lanes')) return;
      if (this.lanes) this.lanes.destroy();
      this.view = new foretrace.SideBySide(pair, this.sides);
      const { view } = this;
      const names = ['a', 'b'].map((side) => view.sides[side].label);
      this.page.timeline = { columns: view.columns, document: { names: view.names, kinds: view.kinds } };
      this.page.lanes = this.lanes = new foretrace.Lanes($('lanes'), {
        ...view.options(),
        label: `The compared steps of ${names.join(' and ')} under each other`,
        details: (row) => view.details(row),
        onSelect: (row) => this.onSelect(row),
      });
      for (const button of document.querySelectorAll('.pairs button')) {
        button.setAttribute('aria-pressed', String(Number(button.dataset.pair) === b));
      }
    }

    /** A selected kernel shows what does its work on the other side. */
    onSelect(row) {
      const spot = row < 0 ? undefined : this.view.spotOf(row);
      this.markPlace(spot ? spot[0] : -1);
      const rows = spot ? this.view.rowsOfPlace(spot[0], spot[1]).filter((one) => one >= 0) : [];
      this.lanes.highlight(rows);
      this.page.note.hidden = true;
      if (!spot) return;
      const place = this.view.pair.places[spot[0]];
      foretrace.say(`${place.category}: ${place.title}`);
    }

    markPlace(at) {
      for (const one of document.querySelectorAll('.tabulator-row.picked')) one.classList.remove('picked');
      const drawn = this.page.tables[`places-${this.view.pair.b}`];
      const row = at >= 0 && drawn ? drawn.tabulator.getRow(at) : null;
      if (row) row.getElement().classList.add('picked');
    }

    /** The rows of the lanes that a row of a table speaks of. */
    rowsOf(table, row) {
      this.choose(numberOf(table));
      const { view } = this;
      if (!view) return [];
      if (table.picks === 'places') {
        history.replaceState(null, '', `#place-${view.pair.b}-${row + 1}`);
        return view.rowsOfPlace(row);
      }
      const name = table.columns.find((column) => column.form === 'name').values[row];
      return table.picks === 'modules' ? view.rowsOfModule(name) : view.rowsNamed(name);
    }

    clear() {
      if (this.lanes) this.lanes.clear();
      this.page.note.hidden = true;
      document.querySelectorAll('.tabulator-row.picked').forEach((row) => row.classList.remove('picked'));
    }
  }

  function text(words, className) {
    return Object.assign(document.createElement('span'), { textContent: words, className });
  }

  /** Categories carry the colours of the lanes, and changes say which way they go. */
  Object.assign((foretrace.cells = foretrace.cells || {}), {
    category: ({ values }, row) => text(values[row], `fate-chip ${values[row]}`),
    change: ({ values, notes }, row) => {
      const value = values[row];
      const words = foretrace.words.signed(value);
      if (value === null) return text((notes && notes[row]) || words, 'change same');
      return text(words, `change ${value < 0 ? 'less' : 'more'}`);
    },
  });

  foretrace.cells.category.width = 105; // px, of the longest category with its colour

  document.addEventListener('DOMContentLoaded', () => {
    if (!$('data-pairs')) return;
    const compared = (foretrace.compared = new ComparePage(foretrace.page));
    foretrace.ready = Promise.all([foretrace.ready, compared.start()]);
  });
})();
